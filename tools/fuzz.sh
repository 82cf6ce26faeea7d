#!/usr/bin/env bash
# Builds the fuzz targets with clang under the address and undefined-behaviour sanitizers and runs each for a while, from the
# seeds in the tree and what earlier runs found.
#
#   tools/fuzz.sh [SECONDS [TARGET...]]        60 s each and all targets, unless said otherwise
#
# build-fuzz/corpus/TARGET grows with each run; what breaks a target lies in build-fuzz/findings. Exit: 0 nothing found, 1
# something found, 77 where there is no clang.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly seconds=${1:-60}
shift || true
if ! command -v clang++ >/dev/null; then
  echo "skipped: the fuzz targets need clang++" >&2
  exit 77
fi

cmake --preset fuzz >/dev/null
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(cut -d' ' -f1 build-fuzz/fuzzers.txt)
fi
cmake --build --preset fuzz --parallel "$(nproc)" --target "${targets[@]}"

mkdir -p build-fuzz/findings
status=0
for target in "${targets[@]}"; do
  read -r _ program seeds < <(grep "^$target " build-fuzz/fuzzers.txt)
  corpus=build-fuzz/corpus/$target
  mkdir -p "$corpus"
  folders=("$corpus")
  if [ -d "$seeds" ]; then folders+=("$seeds"); fi
  echo "$target: $seconds s"
  if ! "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/findings/$target-" "${folders[@]}" >"build-fuzz/$target.log" 2>&1; then
    status=1
    echo "$target: found something; the end of build-fuzz/$target.log:" >&2
    tail -n 40 "build-fuzz/$target.log" >&2
  else
    grep -E '^stat::number_of_executed_units' "build-fuzz/$target.log"
  fi
done
exit $status
