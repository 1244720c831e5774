#!/usr/bin/env bash
# Every row of FIGURES.md, one JSON line each: one core, nothing beside it.
set -euo pipefail
cycle=${CARGO_TARGET_DIR:-target}/dist/examples/cycle
run() { taskset --cpu-list 0 "$cycle" --output json "$@"; }
run --pending 1000
run --pending 10000
run --pending 10000 --reservations 64
run --pending 100000
run --pending 10000 --warm
run --pending 10000 --reservations 64 --warm
run --pending 10000 --requests 1000
run --pending 10000 --requests 1000 --warm
run --pending 1000 --reservations all
run --nodes 50000 --pending 50000 --cycles 11
run --pending 10000 --scores
