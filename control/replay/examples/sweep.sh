#!/usr/bin/env bash
# A thousand vectors over a hundred thousand jobs, on all cores: one table. Needs `lattice` and the example
# `speed` in the dist profile.
set -euo pipefail
target=${CARGO_TARGET_DIR:-target}/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$target/examples/speed" --swf "$work/made.swf"
"$target/lattice" replay sweep --trace "$work/made.swf" --unit nodes --dragonfly 12x125 \
    --over control/replay/examples/sweep.yaml --objective mean_bounded_slowdown,group_span_mean "$@"
