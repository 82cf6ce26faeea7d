"""The commands of the pages for trainers run as they stand: docs/exports.md, docs/python.md and docs/training.md.

A small finished run stands where the pages have the demo. What needs the trainers' own packages is run by tests/peers/documents_test.py,
which goes by the same list.
"""

import os
import re
import shlex
import subprocess
import sys

import pytest

from finished_run import BINARY, ROOT, make_finished_run

pytestmark = pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")
PAGES = ("exports.md", "python.md", "training.md")
TRAINERS_PYTHON = ".venv-peers/bin/python"
# Set-ups that have tests of their own (tests/package_test.py) or take gigabytes, and the run whose data the proof needs.
ELSEWHERE = ("tools/setup_peers.sh", "pip install", "draftmill run configs/drafters.yaml")


def blocks_of(page, language):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def commands_of(page):
    """Lines of shell blocks without their comments; lines that end in a backslash go on."""
    lines = "".join(blocks_of(page, "sh")).replace("\\\n", " ").splitlines()
    return [" ".join(shlex.split(line, comments=True)) for line in lines if shlex.split(line, comments=True)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder that looks like the source tree after the demo."""
    folder = tmp_path_factory.mktemp("tree")
    work = make_finished_run(tmp_path_factory.mktemp("finished"))
    links = {"work/demo": work, "work/drafters-data": work, "models/smollm2-135m-instruct": work.parent / "model"}
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    return folder


def run(command, place):
    environment = {**os.environ, "PATH": f"{BINARY.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "python" / "src")}
    finished = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, f"{command}: {finished.stderr}"
    return finished.stdout


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_run_by_some_test(page):
    for command in commands_of(page):
        known = command.startswith(("draftmill export ", TRAINERS_PYTHON, *ELSEWHERE))
        assert known, f"{page}: no test runs `{command}`"


@pytest.mark.parametrize("page", PAGES)
def test_exports_run_as_they_stand(page, place):
    for command in (line for line in commands_of(page) if line.startswith("draftmill export ")):
        run(shlex.split(command), place)


def test_the_paths_that_trainers_are_told_are_there(place):
    """Every work/ path that docs/exports.md names, after its exports."""
    paths = set(re.findall(r"\bwork/[\w./-]*\w", (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")))
    assert paths >= {"work/specforge/vocab_mapping/vocab_mapping.pt", "work/modelopt/train", "work/torchspec"}
    missing = [path for path in sorted(paths) if not (place / path).exists()]
    assert missing == []


def test_code_of_the_python_page_runs(place):
    pytest.importorskip("torch")
    blocks = blocks_of("python.md", "python")
    assert len(blocks) >= 2
    for block in blocks:
        assert run([sys.executable, "-c", block], place)
