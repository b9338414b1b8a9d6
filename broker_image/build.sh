#!/usr/bin/env bash
# Builds the broker image from the checkout.
#
#   broker_image/build.sh [TAG]    TAG: default raptormq:<version of pyproject.toml>
#
# BASE_IMAGE         base image with Python 3.11 to 3.13; default, the official slim image of Python 3.11
# CONTAINER_ENGINE   docker or podman; default, the one that answers
# Wheels are fetched on this machine, by requirements.lock and its hashes, and kept in the cache for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
cache=${XDG_CACHE_HOME:-$HOME/.cache}/raptormq/wheels

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

version=$("$python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
tag=${1:-raptormq:$version}
base=${BASE_IMAGE:-${PYTHON_BASE_IMAGE:-docker.io/library/python:3.11-slim}}
engine=$(engine)
target=$("$engine" run --rm --network=none --entrypoint python3 "$base" -c 'import platform; print(platform.python_version())')
abi=cp$(echo "$target" | cut -d. -f1,2 | tr -d .)

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir -p "$context/wheels" "$cache"
cp broker_image/Containerfile broker_image/entrypoint.sh "$context"

say "wheel of $version"
"$python" -m build --wheel --no-isolation --outdir "$context/own" . >/dev/null
"$python" scripts/locked.py --python "$target" operator > "$context/wheels/requirements.txt"

say "wheels of requirements.lock for Python $target"
platforms=()
for glibc in 2_17 2_24 2_26 2_27 2_28 2_31 2_34 2_35; do platforms+=(--platform "manylinux_${glibc}_$(uname -m)"); done
fetch() { # fetch WHERE... : options say where the wheels come from
  "$python" -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
    --implementation cp --abi "$abi" --abi abi3 --abi none --python-version "$target" \
    --platform "manylinux2014_$(uname -m)" "${platforms[@]}" \
    --dest "$context/wheels" -r "$context/wheels/requirements.txt" "$@"
}
# What an earlier build fetched needs no network. The hashes are checked either way.
fetch --no-index --find-links "$cache" 2>/dev/null || fetch
cp -n "$context"/wheels/*.whl "$cache"

# Layers are found again by what is in them, times included, so every file gets the same one.
find "$context" -exec touch -d @0 {} +
say "$tag from $base, by $engine"
"$engine" build --quiet --network=none --build-arg "BASE_IMAGE=$base" -t "$tag" -f "$context/Containerfile" "$context" >&2
echo "$tag"
