"""The portable bundle: small, and a whole run works from where it was unpacked, with another folder's torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from byte_model import make_byte_model

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("DRAFTMILL_BINARY", ROOT / "build" / "draftmill"))
MOST_BYTES = 40 << 20
PIPELINE = """\
work: work
model: {{path: {model}}}
ingest: {{sources: [{{path: data.jsonl}}]}}
limits: {{min_free_disk: 0, memory: 1GiB}}
"""

pytestmark = pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    made = subprocess.run([ROOT / "tools" / "dist.sh", BINARY.parent], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    archive = ROOT / made.stdout.strip()
    assert archive.stat().st_size <= MOST_BYTES
    place = tmp_path_factory.mktemp("elsewhere")
    subprocess.run(["tar", "-xzf", archive, "-C", place], check=True)
    (folder,) = place.iterdir()
    return folder


def run(bundle, *arguments, **options):
    return subprocess.run([bundle / "draftmill", *map(str, arguments)], capture_output=True, text=True, check=False, **options)


def plain_environment(path):
    """Nothing that would show the build tree's libraries."""
    return {"PATH": path, "HOME": os.environ.get("HOME", "/")}


def test_a_run_works_with_the_torch_of_python3(bundle, tmp_path):
    model = make_byte_model(tmp_path / "model")
    rows = [{"messages": [{"role": "user", "content": f"{i}?"}, {"role": "assistant", "content": f"{i}."}]} for i in range(9)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(model=model))
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    outcome = run(bundle, "run", tmp_path / "pipeline.yaml", env=plain_environment(path))
    assert outcome.returncode == 0, outcome.stderr
    assert (tmp_path / "work" / "manifest.json").is_file()


def test_the_folder_of_torch_can_be_named(bundle):
    folder = Path(torch.__file__).parent
    outcome = run(bundle, "--torch", folder, "version", env=plain_environment("/usr/bin:/bin"))
    assert outcome.returncode == 0, outcome.stderr


def test_a_missing_torch_is_named(bundle, tmp_path):
    outcome = run(bundle, "--torch", tmp_path, "version", env=plain_environment("/usr/bin:/bin"))
    assert outcome.returncode == 2
    assert str(tmp_path) in outcome.stderr and "torch 2.11.0" in outcome.stderr


def test_nothing_in_it_knows_the_build_tree(bundle):
    dynamic = subprocess.run(["readelf", "-d", bundle / "bin" / "draftmill"], capture_output=True, text=True, check=True).stdout
    assert str(ROOT) not in dynamic
