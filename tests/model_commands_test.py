"""draftmill states and draftmill doctor model, from outside, on a small random model written with numpy alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from make_demo_model import write_safetensors  # noqa: E402

BINARY = os.environ.get("DRAFTMILL_BINARY", str(ROOT / "build" / "draftmill"))
HIDDEN, WIDTH, LAYERS, VOCABULARY = 32, 48, 3, 64
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": WIDTH,
    "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 10000.0, "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
ROWS = [[1, 2, 3], [6 + t * 7 % 58 for t in range(40)], [5], list(range(1, 30))]


def weights():
    generator = np.random.default_rng(3)
    matrices = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN // 2, HIDDEN), "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
                "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (WIDTH, HIDDEN), "mlp.up_proj": (WIDTH, HIDDEN), "mlp.down_proj": (HIDDEN, WIDTH)}
    yield "model.embed_tokens.weight", generator.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32)
    yield "model.norm.weight", np.ones(HIDDEN, dtype=np.float32)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", np.ones(HIDDEN, dtype=np.float32)
        yield f"{prefix}.post_attention_layernorm.weight", np.ones(HIDDEN, dtype=np.float32)
        for name, (rows, columns) in matrices.items():
            yield f"{prefix}.{name}.weight", (generator.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32)


def make_model(folder, **changes):
    """The weights are written as bfloat16."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    write_safetensors(folder / "model.safetensors", weights())
    return folder


def put_nan_into_token(folder, token):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    begin = 8 + length + json.loads(data[8 : 8 + length])["model.embed_tokens.weight"]["data_offsets"][0]
    data[begin + token * HIDDEN * 2 : begin + token * HIDDEN * 2 + 2] = b"\xc0\x7f"
    path.write_bytes(data)


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "model")


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in ROWS))
    return path


def draftmill(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


def read(path):
    """(tensors by name, metadata) of a safetensors file, without any library for it."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    types = {"F32": np.float32, "BF16": np.uint16, "I32": np.int32, "I64": np.int64, "U8": np.uint8}
    body = data[8 + length :]
    tensors = {name: np.frombuffer(body[slice(*info["data_offsets"])], types[info["dtype"]]).reshape(info["shape"]) for name, info in header.items()}
    return tensors, metadata


def test_rows_come_back_in_their_order(model, rows, tmp_path):
    output = tmp_path / "states.safetensors"
    result = draftmill("states", "--model", model, "--input", rows, "--output", output, "--layers", "0,1,3", "--dtype", "float32", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["tokens"] == sum(map(len, ROWS))
    tensors, metadata = read(output)
    assert tensors["cu_seqlens"].tolist() == [0, 3, 43, 44, 73]
    assert tensors["input_ids"].tolist() == [token for row in ROWS for token in row]
    assert tensors["sample_state"].tolist() == [0] * 4
    assert tensors["hidden_states"].shape == (73, 3, HIDDEN)
    assert json.loads(metadata["layers"]) == [0, 1, 3]
    assert (metadata["format"], metadata["dtype"], metadata["final_norm"], metadata["num_layers"]) == ("draftmill.states", "float32", "pre", "3")
    embedding = dict(weights())["model.embed_tokens.weight"]
    np.testing.assert_allclose(tensors["hidden_states"][:, 0], embedding[tensors["input_ids"]], rtol=2**-8)


def test_threads_and_batches_do_not_change_a_bit(model, rows, tmp_path):
    seen = set()
    for number, arguments in enumerate((["--threads", 1], ["--threads", 3])):
        output = tmp_path / f"{number}.safetensors"
        assert draftmill("states", "--model", model, "--input", rows, "--output", output, "--layers", "3", "--dtype", "bfloat16", *arguments).returncode == 0
        seen.add(read(output)[0]["hidden_states"].tobytes())
    assert len(seen) == 1


def test_what_cannot_be_computed_is_refused_before_anything(model, rows, tmp_path):
    output = tmp_path / "states.safetensors"
    bad_rows = tmp_path / "bad.jsonl"
    cases = []
    for line, part in (('{"input_ids": []}', "at least one token"), ('{"ids": [1]}', "input_ids"),
                       ('{"input_ids": [-1]}', "no token id"), ("nonsense", "bad.jsonl:1")):
        bad_rows.write_text(line + "\n")
        cases.append((draftmill("states", "--model", model, "--input", bad_rows, "--output", output, "--layers", "3"), part))
    cases.append((draftmill("states", "--model", model, "--input", rows, "--output", output), "no default EAGLE-3 layers"))
    cases.append((draftmill("states", "--model", model, "--input", rows, "--output", output, "--layers", "4"), "4 is no layer index"))
    cases.append((draftmill("states", "--model", tmp_path / "absent", "--input", rows, "--output", output, "--layers", "3"), "absent"))
    unknown = make_model(tmp_path / "unknown", architectures=["MadeUpForCausalLM"])
    cases.append((draftmill("states", "--model", unknown, "--input", rows, "--output", output, "--layers", "3"), "MadeUpForCausalLM"))
    for result, part in cases:
        assert result.returncode == 2, result
        assert part in result.stderr
        assert result.stdout == ""
    assert not list(tmp_path.glob("states*"))


def test_a_token_beyond_the_embedding_is_named(model, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"input_ids": [1, 64]}\n')
    result = draftmill("states", "--model", model, "--input", rows, "--output", tmp_path / "out.safetensors", "--layers", "3")
    assert result.returncode == 2
    assert "token id 64" in result.stderr
    assert not (tmp_path / "out.safetensors").exists()


def test_states_do_not_replace_what_they_are_made_from(model, rows, tmp_path):
    (tmp_path / "link.safetensors").symlink_to(model / "model.safetensors")
    inputs = {path: path.read_bytes() for path in (rows, model / "config.json", model / "model.safetensors")}
    for output in [*inputs, tmp_path / "link.safetensors"]:
        result = draftmill("states", "--model", model, "--input", rows, "--output", output, "--layers", "3")
        assert (result.returncode, "would replace" in result.stderr) == (2, True), result.stderr
    assert {path: path.read_bytes() for path in inputs} == inputs
    assert (tmp_path / "link.safetensors").is_symlink()


def test_rows_with_bad_states_are_zeroed_and_marked(rows, tmp_path):
    model = make_model(tmp_path / "model")
    put_nan_into_token(model, 5)
    output = tmp_path / "states.safetensors"
    result = draftmill("states", "--model", model, "--input", rows, "--output", output, "--layers", "3", "--dtype", "float32")
    assert result.returncode == 3, result.stderr
    tensors, _ = read(output)
    assert tensors["sample_state"].tolist() == [0, 0, 1, 1]  # rows with token 5
    assert not tensors["hidden_states"][43:].any()
    assert np.isfinite(tensors["hidden_states"]).all()


def test_doctor_compares_with_a_reference(model, rows, tmp_path):
    reference = tmp_path / "reference.safetensors"
    assert draftmill("states", "--model", model, "--input", rows, "--output", reference, "--layers", "0,1,2,3", "--dtype", "float32").returncode == 0
    good = draftmill("doctor", "model", model, "--reference", reference, "--dtype", "float32", "--json")
    assert good.returncode == 0, good.stderr
    facts = json.loads(good.stdout)["examination"]
    assert facts["sound"] and facts["verdict"].startswith("sound: ")
    assert [layer["layer"] for layer in facts["layers"]] == [0, 1, 2, 3]
    assert max(layer["largest_distance"] for layer in facts["layers"]) == 0
    other = make_model(tmp_path / "other", num_attention_heads=2, num_key_value_heads=1)
    bad = draftmill("doctor", "model", other, "--reference", reference, "--dtype", "float32", "--json")
    assert bad.returncode == 1
    assert "from the reference" in json.loads(bad.stdout)["examination"]["verdict"]


def test_doctor_tells_what_config_json_says(model):
    facts = json.loads(draftmill("doctor", "model", model, "--config-only", "--json").stdout)
    assert (facts["family"], facts["hidden_size"], facts["layers"]) == ("llama", HIDDEN, LAYERS)


def test_doctor_without_tokenizer_and_reference_looks_at_headers(model):
    result = draftmill("doctor", "model", model, "--json")
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert facts["family"] == "llama"
    assert facts["examination"]["sound"] is None
    assert "tokenizer" in facts["examination"]["verdict"]


def test_doctor_takes_the_weights_that_a_run_takes(model, rows, tmp_path):
    reference = tmp_path / "reference.safetensors"
    assert draftmill("states", "--model", model, "--input", rows, "--output", reference, "--layers", "3", "--dtype", "float32").returncode == 0
    result = draftmill("doctor", "model", model, "--reference", reference, "--dtype", "float32", "--device", "cpu", "--weights", "sharded")
    assert result.returncode != 0
    assert "shares weights out over GPUs" in result.stderr  # and is no unknown word


def test_bench_extract_refuses_what_cannot_be_measured(model):
    impossible = {"--device": "tpu", "--weights": "somewhere", "--threads": "0", "--seconds": "0", "--disk-seconds": "-1",
                  "--product-seconds": "-1", "--mean-tokens": "0", "--max-tokens": "8", "--batch-tokens": "-1", "--block-tokens": "-1"}
    for option, value in impossible.items():
        result = draftmill("bench", "extract", model, "--layers", "3", option, value)
        assert (result.returncode, result.stdout) == (2, ""), (option, result)
        assert f"{option}: " in result.stderr
        assert "loading" not in result.stderr


def test_bench_extract_measures_a_small_model(model):
    result = draftmill("bench", "extract", model, "--device", "cpu", "--layers", "3", "--seconds", "0.01",
                       "--mean-tokens", "16", "--max-tokens", "64", "--json")
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert 16 <= facts["mean_tokens"] <= 64
    assert facts["to_nowhere"]["tokens"] > 0
