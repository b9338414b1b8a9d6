#!/bin/sh
# operator ...          the Kubernetes operator
# namesrv|broker ...    and every other command of `raptormq`, with its arguments
# The process takes the place of this shell, so that signals reach it.
set -eu
if [ "${1:-}" = operator ]; then
  shift
  exec python3 -m raptormq_operator "$@"
fi
exec raptormq "$@"
