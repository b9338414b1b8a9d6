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
. scripts/image_wheels.sh

version=$(project_version)
tag=${1:-raptormq:$version}
base=${BASE_IMAGE:-${PYTHON_BASE_IMAGE:-docker.io/library/python:3.11-slim}}
engine=$(engine)
target=$(python_of "$engine" "$base")

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir "$context/wheels"
cp broker_image/Containerfile broker_image/entrypoint.sh "$context"

say "wheel of $version"
"$python" -m build --wheel --no-isolation --outdir "$context/own" . >/dev/null
"$python" scripts/locked.py --python "$target" operator > "$context/wheels/requirements.txt"
wheels "$target" "$context/wheels/requirements.txt" "$context/wheels"

# Layers are found again by what is in them, times included, so every file gets the same one.
find "$context" -exec touch -d @0 {} +
say "$tag from $base, by $engine"
"$engine" build --quiet --network=none --build-arg "BASE_IMAGE=$base" -t "$tag" -f "$context/Containerfile" "$context" >&2
echo "$tag"
