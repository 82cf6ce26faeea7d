"""A tiny model whose tokens are bytes: it needs no other model's files, and a run with it takes a moment."""

import json

from tiny_model import make_tiny_model

ADDED_TOKENS = ("<|im_start|>", "<|im_end|>")
VOCABULARY_SIZE = 260
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def _byte_symbols():
    """GPT-2's visible stand-in for each byte."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte if byte in visible else 256 + hidden.index(byte)) for byte in range(256)]


def _tokenizer():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": 256 + i, "content": text, **flags} for i, text in enumerate(ADDED_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(_byte_symbols())}, "merges": []},
    }


def _config(vocabulary_size):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "eos_token_id": 257,
        "vocab_size": vocabulary_size,
    }


def write_text_files(folder, config):
    """The tokenizer and template, and this configuration, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": config,
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {"eos_token": ADDED_TOKENS[1], "chat_template": CHAT_TEMPLATE},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def make_byte_model(folder, vocabulary_size=VOCABULARY_SIZE):
    """Writes the model to `folder`, its tokenizer and template to `folder`-text beside it."""
    text = folder.with_name(folder.name + "-text")
    write_text_files(text, _config(vocabulary_size))
    return make_tiny_model(folder, text)
