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
    elif isinstance(expected, list) and expected and isinstance(expected[0], float):
        assert len(expected) == len(fact), where
        for index, value in enumerate(expected):
            assert_agrees(value, fact[index], f"{where}[{index}]")
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


def window(answer, field, none):
    return none if answer["sliding_window"] is None else answer["sliding_window"][field]


def frequencies(found):
    """What the answer says of a list of frequencies, to be held against the list's own."""
    return {name: found[name] for name in ("count", "first", "middle", "last", "sum")}


def facts_of(values):
    return {"count": len(values), "first": values[0], "middle": values[len(values) // 2], "last": values[-1], "sum": math.fsum(values)}


def rope_facts(rope):
    return {"type": rope["type"], "theta": rope["theta"], **({"factor": rope["parameters"]["factor"]} if "factor" in rope.get("parameters", {}) else {})}


def notes_name(answer, names):
    return all(any(name in note for note in answer["notes"]) for name in names)


# What a case says, and where the answer says it.
SAME_NAME = {"vocab_size", "head_dim", "softmax_scale", "norm_eps", "prefix", "compute_dtype", "eos_ids", "max_position_embeddings"}
ANSWERED = {
    "bits": lambda answer: answer["quantisation"]["bits"],
    "group": lambda answer: answer["quantisation"]["group"],
    "symmetric": lambda answer: answer["quantisation"]["symmetric"],
    "layers": lambda answer: answer.get("default_eagle3_layers", answer["layers"]),
    "tied": lambda answer: answer["tied_embeddings"],
    "sliding_layers": lambda answer: window(answer, "layers", []),
    "window_tokens_including_self": lambda answer: window(answer, "tokens_including_self", None),
    "rope_type": lambda answer: answer["rope"]["type"],
    "rope_theta": lambda answer: answer["rope"]["theta"],
    "factor": lambda answer: answer["rope"]["parameters"]["factor"],
    "rotary_dims": lambda answer: answer["rope"]["rotary_dims"],
    "cos_sin_factor": lambda answer: answer["rope"]["cos_sin_factor"],
    "rope": lambda answer: {"full": rope_facts(answer["rope"]), "sliding": rope_facts(answer["rope"]["local"])},
    "query_key_width": lambda answer: answer["head_dim"],
    "latent_norm_eps": lambda answer: {f"numerics_{kind}": answer["mla"][f"latent_norm_eps_{kind}"] for kind in ("hf", "fused")},
    "dtype": lambda answer: answer["dtype_in_config"],
    "skipped": lambda answer: answer["ignored_tensors"],
}
FREQUENCIES = {"inv_freq": "inv_freq", "inv_freq_short": "inv_freq", "inv_freq_long": "inv_freq_long"}
NAMED_IN_NOTES = {"ignored"}
# Of the case, or held against the weights themselves by the unit tests.
NOT_OF_THE_ANSWER = {"verdict", "note", "meaning", "also_right", "stored_dtype", "files", "ignored_prefixes", "shapes", "ignored_name", "switch",
                     "skipped_prefix", "head", "reason_kind", "message_names", "numbers"}


def assert_case(right, answer, name):
    for key, value in right.items():
        where = f"{name}.{key}"
        if key in SAME_NAME:
            assert_agrees(value, answer[key], where)
        elif key in ANSWERED:
            assert_agrees(value, ANSWERED[key](answer), where)
        elif key in FREQUENCIES:
            assert_agrees(facts_of(value), frequencies(answer["rope"][FREQUENCIES[key]]), where)
        elif key in NAMED_IN_NOTES:
            assert value == answer["ignored_tensors"] if isinstance(value, int) else notes_name(answer, value), where
        else:
            assert key in NOT_OF_THE_ANSWER, f"{where}: nothing reads this"


@pytest.mark.parametrize("name", cases())
def test_field_case(name):
    case = json.loads((CASES / name / "case.json").read_text())
    right = case["right"]
    without_weights = any(words in case["uses"] for words in ("config.json only", "names only", "three files"))
    status, answer = doctor(CASES / name, *(["--config-only"] if without_weights else []))
    if right["verdict"] == "accept" or "accept" in right.get("also_right", []):
        assert (status, answer["verdict"]) == (0, "accept"), answer
        assert_case(right, answer, name)
    else:
        assert_refused(status, answer, [*right["message_names"], *map(str, right.get("numbers", []))])
