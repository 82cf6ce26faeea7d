#!/usr/bin/env bash
# Builds and runs every benchmark program, then measures tokenizers beside the Python originals, text from end to end, and
# extraction beside the usual ways with transformers. Quiet machine, please: timings of a busy one say nothing.
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
echo "== tokenizers"
.venv/bin/python tests/bench_tokenizers.py --program build/stages/tokenize/tokenizer/tokenizer_bench
echo "== text"
.venv/bin/python tests/bench_text.py
echo "== extraction"
.venv/bin/python tests/bench_extract.py
echo "== streamed weights"
.venv/bin/python tests/bench_streamed.py
