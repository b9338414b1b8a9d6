#!/usr/bin/env bash
# Builds the image of the official Java client for e2e.
#
#   e2e/java_client/build.sh TAG
#
# BASE_IMAGE         base image with Java 17; default, Eclipse Temurin's
# CONTAINER_ENGINE   docker or podman; default, the one that answers
# The programs and the client are those of tests/interop, which Maven builds into the cache once.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/image_wheels.sh
scripts/install.sh commands javac mvn

tag=$1
engine=$(engine)
built=$("$python" -c 'from tests.interop.rocketmq_java import build; print(build().folder)')
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp e2e/java_client/Containerfile "$context"
cp -r "$built/conf" "$built/client/classes" "$context"
# No native libraries of other systems, and nothing of which the client itself has no need.
mkdir "$context/lib"
find "$built/newest-client/lib" -name '*.jar' ! -name '*osx*' ! -name '*grpc*' ! -name '*kotlin*' -exec cp {} "$context/lib" \;
say "$tag, by $engine"
"$engine" build --quiet ${BASE_IMAGE:+--build-arg "BASE_IMAGE=$BASE_IMAGE"} -t "$tag" -f "$context/Containerfile" "$context" >&2
echo "$tag"
