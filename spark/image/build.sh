#!/usr/bin/env bash
# Builds the image for Spark drivers and executors from the checkout.
#
#   spark/image/build.sh [TAG]    TAG: default raptormq-spark:<version of pyproject.toml>
#
# BASE_IMAGE         base image with Python 3.11 to 3.13 and, if possible, Java 17, procps and tini; default, the official
#                    slim image of Python 3.11, to which Debian's packages are added
# CONTAINER_ENGINE   docker or podman; default: the one that is available
# Wheels are downloaded on this machine according to requirements.lock and its hashes, and cached.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/image_wheels.sh

version=$(project_version)
tag=${1:-raptormq-spark:$version}
base=${BASE_IMAGE:-${JAVA_BASE_IMAGE:-docker.io/library/python:3.11-slim-bookworm}}
engine=$(engine)
target=$(python_of "$engine" "$base")

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
mkdir "$context/wheels" "$context/examples"
cp spark/image/Containerfile spark/image/entrypoint.sh spark/image/slim.py "$context"
cp examples/spark_*.py "$context/examples"

say "wheel of $version"
"$python" -m build --wheel --no-isolation --outdir "$context/wheels" . >/dev/null
"$python" scripts/locked.py --python "$target" spark > "$context/locked.txt"
# PySpark is published only as a source archive, from which a wheel is built here.
awk '/^[a-z]/ { pyspark = /^pyspark==/ } pyspark' "$context/locked.txt" > "$context/pyspark.txt"
awk '/^[a-z]/ { pyspark = /^pyspark==/ } !pyspark' "$context/locked.txt" > "$context/wheels.txt"
# Hashes are verified when the wheels are downloaded; the hash of pyspark is that of its source archive.
sed -n 's/^\([a-z0-9-]*==[^ ]*\).*/\1/p' "$context/locked.txt" > "$context/requirements.txt"

wheels "$target" "$context/wheels.txt" "$context/wheels"
pyspark=$(sed -n 's/^pyspark==\([^ ]*\).*/pyspark-\1-py2.py3-none-any.whl/p' "$context/pyspark.txt")
if [ ! -e "$cache/$pyspark" ]; then
  say "$pyspark"
  "$python" -m pip wheel --quiet --disable-pip-version-check --require-hashes --no-deps --wheel-dir "$cache" -r "$context/pyspark.txt"
fi
cp "$cache/$pyspark" "$context/wheels"
rm -f "$cache"/raptormq-*.whl

say "$tag from $base, by $engine"
"$engine" build --quiet --build-arg "BASE_IMAGE=$base" -t "$tag" -f "$context/Containerfile" "$context" >&2
echo "$tag"
