"""`draftmill doctor model --json` on published configurations and on the faults that people reported of model folders."""

import json
import math
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("DRAFTMILL_BINARY", ROOT / "build" / "draftmill"))
DATA = Path(os.environ.get("DRAFTMILL_TEST_DATA") or ROOT / "../shared/data")
CONFIGS = DATA / "model_configs"
CASES = DATA / "field_cases" / "model"
# Of the collection, not of the model.
NOT_FACTS = {"verdict", "model", "model_licence", "files", "source", "transformers_5.24", "head_dim_note"}

pytestmark = pytest.mark.skipif(not BINARY.is_file() or not CONFIGS.is_dir(), reason=f"{BINARY} or {CONFIGS} is absent")


def doctor(folder, *options):
    """(exit status, the JSON on standard output)"""
    command = [BINARY, "doctor", "model", folder, "--json", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


def expected_models():
    return json.loads((CONFIGS / "expected.json").read_text()) if CONFIGS.is_dir() else {}


def cases():
    return sorted(path.parent.name for path in CASES.glob("*/case.json") if (path.parent / "config.json").exists())


def assert_agrees(expected, fact, where):
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert name in fact, f"{where}.{name}"
            assert_agrees(value, fact[name], f"{where}.{name}")
    elif isinstance(expected, (int, float)) and not isinstance(expected, bool):
        assert math.isclose(fact, expected, rel_tol=1e-12), where
    else:
        assert fact == expected, where


def assert_refused(status, answer, names):
    assert status == 2
    assert answer["verdict"] == "refuse"
    for name in names:
        assert name in answer["reason"]["message"]


@pytest.mark.parametrize("name", expected_models())
def test_published_configuration(name):
    expected = expected_models()[name]
    status, answer = doctor(CONFIGS / name, "--config-only")
    if expected["verdict"] == "accept":
        assert (status, answer["verdict"]) == (0, "accept"), answer
        assert_agrees({key: value for key, value in expected.items() if key not in NOT_FACTS}, answer, name)
    elif "at byte" not in answer["reason"]["message"]:  # no JSON at all: that is named instead
        assert_refused(status, answer, expected["reason"]["message_names"])


@pytest.mark.parametrize("name", cases())
def test_field_case(name):
    case = json.loads((CASES / name / "case.json").read_text())
    right = case["right"]
    without_weights = any(words in case["uses"] for words in ("config.json only", "names only", "three files"))
    status, answer = doctor(CASES / name, *(["--config-only"] if without_weights else []))
    if right["verdict"] == "accept" or "accept" in right.get("also_right", []):
        assert (status, answer["verdict"]) == (0, "accept"), answer
        for key in ("vocab_size", "head_dim", "softmax_scale", "norm_eps", "prefix", "compute_dtype", "eos_ids"):
            if key in right:
                assert_agrees(right[key], answer[key], f"{name}.{key}")
    else:
        assert_refused(status, answer, right["message_names"])
