"""What the tests against the trainers' own packages share: the demo's work folder, its exports, and features by transformers.

Runs in the environment that tools/setup_peers.sh makes: .venv-peers/bin/python -m pytest tests/peers. Needs the finished demo
(tools/demo.sh) and the built program.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "src"))

BINARY = Path(os.environ.get("DRAFTMILL_BINARY", ROOT / "build" / "draftmill"))
WORK = Path(os.environ.get("DRAFTMILL_DEMO_WORK", ROOT / "work" / "demo"))
MODEL = Path(os.environ.get("DRAFTMILL_DEMO_MODEL", ROOT / "models" / "smollm2-135m-instruct"))
SAMPLES = 12


def pytest_collection_modifyitems(items):
    missing = [path for path in (BINARY, WORK / "manifest.json", MODEL / "config.json") if not path.exists()]
    for item in items:
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"{missing[0]} is missing: tools/demo.sh makes it"))


@pytest.fixture(scope="session")
def export(tmp_path_factory):
    """Exports the first samples of the demo in a format, once."""
    made = {}

    def export_as(form):
        if form not in made:
            made[form] = tmp_path_factory.mktemp("exports") / form
            command = [BINARY, "export", WORK, form, "--output", made[form], "--select", f"samples=0-{SAMPLES - 1}"]
            subprocess.run(command, check=True, capture_output=True)
        return made[form]

    return export_as


@pytest.fixture(scope="session")
def stored():
    """The same samples as the shards hold them."""
    from features import stored_samples

    return stored_samples(WORK, SAMPLES)


@pytest.fixture(scope="session")
def reference(stored):
    """The same samples by transformers in bfloat16, from their ids alone."""
    from features import transformers_samples

    return transformers_samples(MODEL, stored)
