#!/usr/bin/env bash
# Configures and builds a preset, runs its tests and counts them. What tools/test.sh, .ci/run and the Makefile share.
#
#   tools/run_tests.sh PRESET [CTEST OPTION...]       e.g. tools/run_tests.sh tsan -L fast
#
# The results go to BUILD/tests.xml; the last line is 'N passed, N failed[, N skipped]'. Exit: 0 all passed, else 1.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly preset=${1:?"usage: tools/run_tests.sh PRESET [CTEST OPTION...]"}
shift
case $preset in
  release) build=build ;;
  asan-ubsan) build=build-asan ;;
  *) build=build-$preset ;;
esac
jobs=$(nproc)

cmake --preset "$preset"
cmake --build --preset "$preset" --parallel "$jobs"
# A stale count must not be taken for this run's.
rm -f "$build/tests.xml"
ctest --test-dir "$build" --parallel "$jobs" --output-on-failure --no-tests=error \
  --output-junit tests.xml "$@" || true
python3 tools/count_tests.py --names "$build/tests.xml"
