#!/usr/bin/env bash
# Sets up, builds and runs the fast tests; with --all also the slow ones. The last line counts the tests.
#
#   tools/test.sh [--all]
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  "") selection=(-L '^fast$') ;;
  --all) selection=() ;;
  *)
    echo "usage: tools/test.sh [--all]" >&2
    exit 2
    ;;
esac

tools/setup.sh test
# Tests that need the demo model are skipped without it.
.venv/bin/python tools/make_demo_model.py
exec tools/run_tests.sh release "${selection[@]}"
