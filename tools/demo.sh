#!/usr/bin/env bash
# Sets up, builds, makes the demo model and runs configs/demo.yaml: chat data becomes a training set in work/demo.
# Run again, it says that all is up to date.
#
#   tools/demo.sh
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh cpu
cmake --preset release
cmake --build --preset release --parallel "$(nproc)" --target draftmill
.venv/bin/python tools/make_demo_model.py
build/draftmill run configs/demo.yaml
build/draftmill verify work/demo
cat <<'MESSAGE'

The training set is in work/demo: corpus/ (token ids and loss masks), vocab/ (draft vocabulary), shards/ (hidden
states), manifest.json. To look around:
  build/draftmill status work/demo
  build/draftmill inspect work/demo
  sqlite3 -readonly work/demo/state.db 'select * from progress'
MESSAGE
