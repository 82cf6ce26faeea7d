#!/usr/bin/env bash
# Builds and runs every benchmark program, then measures extraction beside the usual ways with transformers. Quiet
# machine, please: timings of a busy one say nothing.
#
#   tools/bench.sh [GOOGLE BENCHMARK OPTION...]       e.g. tools/bench.sh --benchmark_filter=Hash
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh test
.venv/bin/python tools/make_demo_model.py
cmake --preset release
cmake --build --preset release --parallel "$(nproc)" --target draftmill benchmarks
while read -r program; do
  echo "== ${program##*/}"
  "$program" "$@"
done <build/benchmarks.txt
echo "== extraction"
.venv/bin/python tests/bench_extract.py
