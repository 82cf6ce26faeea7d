"""The demo model's folder against transformers: it loads, it speaks, and its tokenizer is the one SmolLM2 has."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "smollm2-135m-instruct"
MAKE = [sys.executable, str(ROOT / "tools" / "make_demo_model.py")]

pytestmark = pytest.mark.skipif(not MODEL.is_dir(), reason=f"{MODEL} is absent; tools/make_demo_model.py makes it")


def test_is_whole_and_a_damaged_one_is_noticed(tmp_path):
    assert subprocess.run([*MAKE, "--check"], check=False).returncode == 0
    for path in MODEL.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text((MODEL / "config.json").read_text().replace("576", "577"))
    checked = subprocess.run([*MAKE, "--check", "--output", str(tmp_path)], check=False, capture_output=True, text=True)
    assert checked.returncode == 1
    assert "config.json" in checked.stderr


def test_another_gguf_is_refused_and_nothing_is_left(tmp_path):
    (tmp_path / "other.gguf").write_bytes(b"GGUF" + bytes(100))
    command = [*MAKE, "--output", str(tmp_path / "made"), "--gguf", str(tmp_path / "other.gguf")]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    assert made.returncode == 1
    assert "SHA-256" in made.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["other.gguf"]


def test_tokenizer_splits_single_digits_and_keeps_special_tokens():
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 49152
    assert tokenizer.encode("In 2048,").tokens == ["In", "\u0120", "2", "0", "4", "8", ","]
    assert tokenizer.encode("<|im_start|>user\n").ids[0] == 1
    assert tokenizer.encode("a<|im_end|>").ids[-1] == 2
    for text in ("caf\u00e9 \u00bd \u6f22\u5b57 \U0001f600\n\n  x", "def f(a):\n\treturn a\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_transformers_takes_the_same_tokenizer():
    plain = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    loaded = AutoTokenizer.from_pretrained(MODEL)
    for text in ("In 12345 days, we'll see \u00bd x2", "\u0663\u0664 items", "  indented\n\ttabs"):
        assert loaded(text).input_ids == plain.encode(text).ids
    assert loaded.eos_token_id == json.loads((MODEL / "config.json").read_text())["eos_token_id"]


def test_the_answer_to_a_question_makes_sense():
    """The next tokens after a short question, all from one forward pass over question and expected answer."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    answer = "The capital of France is Paris.<|im_end|>"
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) + answer
    ids = tokenizer(text, return_tensors="pt").input_ids
    with torch.inference_mode():
        greedy = model(ids).logits.argmax(-1)
    count = len(tokenizer(answer).input_ids)
    assert tokenizer.decode(greedy[0][-count - 1 : -1]) == answer
