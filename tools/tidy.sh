#!/usr/bin/env bash
# clang-tidy over our own sources, with the checks of .clang-tidy.
#
#   tools/tidy.sh [FILE...]        default: every .cc of the text build
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clang-tidy >/dev/null || {
  echo "tidy: clang-tidy is missing; run: sudo apt-get install -y clang-tidy" >&2
  exit 2
}
tools/setup.sh text
cmake --preset text >/dev/null
if [[ $# -gt 0 ]]; then
  files=("$@")
else
  # What the text build compiles, so that no include path is guessed.
  mapfile -t files < <(python3 -c '
import json, pathlib
root = pathlib.Path.cwd()
for entry in json.load(open("build-text/compile_commands.json")):
    path = pathlib.Path(entry["file"])
    if path.is_relative_to(root) and "build" not in path.relative_to(root).parts[0]:
        print(path.relative_to(root))' | sort -u)
fi
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build-text \
  --extra-arg=-Wno-unknown-warning-option
echo "tidy: ${#files[@]} files, no finding"
