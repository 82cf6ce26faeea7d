#!/usr/bin/env bash
# Makes .venv-peers: the trainers' own packages, for the tests labelled `peers` and for tools/drafters. 5 GB.
#
#   tools/setup_peers.sh
#
# Their requirements contradict each other, so they are installed without them, beside the versions with which all three run on
# the CPU. Run again, it does only what is left to do.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly environment=.venv-peers
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/pip" install --quiet --requirement tools/requirements-peers.txt
"$environment/bin/pip" install --quiet --no-deps speculators==0.9.0 specforge==0.2.0 nvidia-modelopt==0.47.0
echo "$environment is ready: $environment/bin/python -m pytest tests/peers"
