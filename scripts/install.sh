#!/usr/bin/env bash
# Installs what the Makefile's targets need. Every step does nothing where its work is done already.
#
#   scripts/install.sh commands NAME...   programs of the system: java, javac, mvn, node, npm, go, git, podman, cc
#   scripts/install.sh promtool           promtool, which tests the chart's alarms; into the cache, without the server
#   scripts/install.sh actionlint         actionlint from its Go module, run over .github/workflows
#   scripts/install.sh venv               .venv in the checkout from requirements.lock, with this package in it (editable)
#
# Programs come from Debian packages and are installed when this runs as root; anyone else is told what to install.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'install: %s\n' "$*" >&2; }

debian_package() { # debian_package COMMAND: the package that brings it
  case $1 in
    java) echo openjdk-17-jre-headless ;;
    javac) echo openjdk-17-jdk-headless ;;
    mvn) echo maven ;;
    node) echo nodejs ;;
    go) echo golang-go ;;
    cc) echo build-essential ;;
    *) echo "$1" ;;
  esac
}

apt_alone() { # from here to its end, other installs in this checkout wait: apt-get fails beside another one
  exec 8<scripts/install.sh
  flock 8
}

apt_install() { # apt_install PACKAGE...
  if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    say "please install these packages (on Debian: apt-get install $*), then run this again"
    exit 1
  fi
  apt_alone
  say "apt-get install $*"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

commands() { # commands NAME...: all of them on the PATH afterwards
  local name missing=()
  for name in "$@"; do
    command -v "$name" >/dev/null || missing+=("$(debian_package "$name")")
  done
  [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
}

promtool() { # unpacked and not installed: the package would start a server on this machine
  local bin=${XDG_CACHE_HOME:-$HOME/.cache}/raptormq/bin
  if type -P promtool >/dev/null || [ -x "$bin/promtool" ]; then return; fi
  if ! command -v apt-get >/dev/null; then
    say "please install promtool (prometheus.io/download), then run this again"
    exit 1
  fi
  say "promtool of Debian's package prometheus into $bin"
  apt_alone
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  [ "$(id -u)" != 0 ] || apt-get update -qq
  (cd "$folder" && apt-get download -qq -o APT::Sandbox::User=root prometheus && dpkg-deb --extract ./*.deb .)
  install -D "$folder/usr/bin/promtool" "$bin/promtool"
}

actionlint() { # built from its Go module; checks the workflows at once
  local version=v1.7.12 bin=${XDG_CACHE_HOME:-$HOME/.cache}/raptormq/bin
  if [ ! -x "$bin/actionlint-$version" ]; then
    say "actionlint $version into $bin"
    GOBIN=$bin GOFLAGS=-mod=mod go install "github.com/rhysd/actionlint/cmd/actionlint@$version"
    mv "$bin/actionlint" "$bin/actionlint-$version"
  fi
  "$bin/actionlint-$version" -shellcheck= -pyflakes= .github/workflows/*.yaml
}

usable_python() { # prints the first Python that pyproject.toml accepts
  local python
  for python in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
}

venv() {
  local python
  if [ ! -x .venv/bin/python ]; then
    python=$(usable_python)
    if [ -z "$python" ] || ! "$python" -c 'import ensurepip' 2>/dev/null; then
      apt_install python3-venv
      python=$(usable_python)
    fi
    [ -n "$python" ] || { say "Python 3.11, 3.12 or 3.13 is needed; name one with PYTHON=..."; exit 1; }
    "$python" -m venv .venv
  fi
  say "Python packages of requirements.lock into .venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
  touch .venv/.installed
}

"$@"
