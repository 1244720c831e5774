#!/usr/bin/env bash
# Instructions of one planning cycle (callgrind counts them, the same on a quiet machine and a busy one), in
# millions: every row of FIGURES.md, one JSON line each.
set -euo pipefail
cycle=${CARGO_TARGET_DIR:-target}/dist/examples/cycle
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# Collected where the bench measures, not where it makes its view.
count() {
    valgrind --quiet --tool=callgrind --callgrind-out-file="$out" --collect-atstart=no \
        --toggle-collect='cycle::*_cycle' \
        "$cycle" --output json "$@" >/dev/null 2>&1
    sed -n 's/^\(totals\|summary\): //p' "$out" | head -n 1
}
# A run of one cycle beside one of two: what is between them is one cycle, without the first warm-up.
row() {
    local one two
    one=$(count "$@" --cycles 1)
    two=$(count "$@" --cycles 2)
    echo "{\"row\": \"$*\", \"instructions_millions\": $(((two - one) / 1000000))}"
}
row --pending 1000
row --pending 10000
row --pending 10000 --reservations 64
row --pending 100000
row --pending 10000 --warm
row --pending 10000 --reservations 64 --warm
row --pending 10000 --requests 1000
row --pending 10000 --requests 1000 --warm
row --pending 1000 --reservations all
row --nodes 50000 --pending 50000
row --pending 10000 --scores
