"""The commands of docs/training.md that need the trainers' packages, on a small run in the demo's place and for a few steps."""

import json
import os
import shlex
import subprocess
import sys

import pytest
from conftest import BINARY, ROOT

sys.path.insert(0, str(ROOT / "tests"))
from finished_run import make_finished_run
from trainer_documents_test import TRAINERS_PYTHON, commands_of

# Given last, they stand above what the page says.
SHORT = {"train.py": ["--steps", "2", "--device", "cpu"], "judge.py": ["--device", "cpu"]}


def trainer_commands():
    """By script, the arguments that the page gives."""
    lines = [shlex.split(line) for line in commands_of("training.md") if line.startswith(TRAINERS_PYTHON)]
    return [(line[1].rsplit("/", 1)[-1], line) for line in lines if line[1].startswith("tools/drafters/")]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    work = make_finished_run(tmp_path_factory.mktemp("finished"))
    for name, target in {"models/smollm2-135m-instruct": work.parent / "model", "tools": ROOT / "tools"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    export = [BINARY, "export", work, "speculators", "--output", folder / "work" / "speculators", "--select", "eval=0.3"]
    subprocess.run(export, check=True, capture_output=True)
    return folder


def run(place, line, *more):
    command = [sys.executable, *line[1:], *more]
    finished = subprocess.run(command, cwd=place, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_page_names_every_script():
    assert {script for script, _ in trainer_commands()} == {"train.py", "judge.py", "prove.py"}


def test_one_drafter_is_trained_and_judged(place):
    """train.py, then judge.py, in the order of the page."""
    lines = [(script, line) for script, line in trainer_commands() if script in SHORT]
    facts = [json.loads(run(place, line, *SHORT[script]).splitlines()[-1]) for script, line in lines]
    assert facts[0]["steps"] == 2 and facts[0]["samples"] > 0
    assert 1 <= facts[-1]["acceptance_length"] <= 1 + facts[-1]["drafted_tokens"]


def test_the_options_of_the_proof_exist(place):
    """It trains nine drafters: only that its options are known."""
    for line in (line for script, line in trainer_commands() if script == "prove.py"):
        known = run(place, [line[0], line[1]], "--help")
        unknown = [option for option in line if option.startswith("--") and option not in known]
        assert unknown == []
