# shellcheck shell=bash
# What the builds of the images have in common: an engine, and wheels for the Python of a base image. Sourced in the
# folder of the checkout.
python=.venv/bin/python
cache=${XDG_CACHE_HOME:-$HOME/.cache}/raptormq/wheels
mkdir -p "$cache"

say() { printf 'image: %s\n' "$*" >&2; }

engine() { # docker or podman
  local name
  for name in ${CONTAINER_ENGINE:-docker podman}; do
    if command -v "$name" >/dev/null && "$name" info >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
  say "neither docker nor podman answers; install podman, or start docker"
  exit 2
}

project_version() { "$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])'; }

python_of() { # python_of ENGINE BASE_IMAGE : the version that it has
  "$1" run --rm --network=none --entrypoint python3 "$2" -c 'import platform; print(platform.python_version())'
}

wheels() { # wheels TARGET REQUIREMENTS FOLDER : fetch wheels for this version of Python, or take those of an earlier build
  local abi glibc where=(pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all:)
  abi=cp$(echo "$1" | cut -d. -f1,2 | tr -d .)
  where+=(--implementation cp --abi "$abi" --abi abi3 --abi none --python-version "$1")
  for glibc in 2014 _2_17 _2_24 _2_26 _2_27 _2_28 _2_31 _2_34 _2_35; do where+=(--platform "manylinux${glibc}_$(uname -m)"); done
  where+=(--dest "$3" -r "$2")
  say "wheels of requirements.lock for Python $1"
  # What an earlier build fetched needs no network. The hashes are checked either way.
  "$python" -m "${where[@]}" --no-index --find-links "$cache" 2>/dev/null || "$python" -m "${where[@]}"
  cp -n "$3"/*.whl "$cache"
}
