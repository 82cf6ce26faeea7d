"""Makes a Llama of a few thousand weights with the tokenizer of another model, for runs whose subject is the data."""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from make_demo_model import write_safetensors

HIDDEN_SIZE = 32
KV_SIZE = 16
FEED_FORWARD_SIZE = 48
LAYERS = 7  # the least for which the default layers are distinct


def _weights(vocabulary_size):
    generator = np.random.default_rng(7)

    def matrix(rows, columns):
        return (generator.standard_normal((rows, columns)) * columns**-0.5).astype(np.float32)

    yield "model.embed_tokens.weight", matrix(vocabulary_size, HIDDEN_SIZE)
    yield "model.norm.weight", np.ones(HIDDEN_SIZE, dtype=np.float32)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.input_layernorm.weight", np.ones(HIDDEN_SIZE, dtype=np.float32)
        yield f"{prefix}.post_attention_layernorm.weight", np.ones(HIDDEN_SIZE, dtype=np.float32)
        yield f"{prefix}.self_attn.q_proj.weight", matrix(HIDDEN_SIZE, HIDDEN_SIZE)
        yield f"{prefix}.self_attn.k_proj.weight", matrix(KV_SIZE, HIDDEN_SIZE)
        yield f"{prefix}.self_attn.v_proj.weight", matrix(KV_SIZE, HIDDEN_SIZE)
        yield f"{prefix}.self_attn.o_proj.weight", matrix(HIDDEN_SIZE, HIDDEN_SIZE)
        yield f"{prefix}.mlp.gate_proj.weight", matrix(FEED_FORWARD_SIZE, HIDDEN_SIZE)
        yield f"{prefix}.mlp.up_proj.weight", matrix(FEED_FORWARD_SIZE, HIDDEN_SIZE)
        yield f"{prefix}.mlp.down_proj.weight", matrix(HIDDEN_SIZE, FEED_FORWARD_SIZE)


def make_tiny_model(folder, tokenizer_of):
    """Writes the model to `folder`; tokenizer and chat template are linked from the folder `tokenizer_of`."""
    folder.mkdir(parents=True)
    config = json.loads((tokenizer_of / "config.json").read_text(encoding="utf-8"))
    config.update(
        hidden_size=HIDDEN_SIZE,
        intermediate_size=FEED_FORWARD_SIZE,
        num_attention_heads=2,
        num_hidden_layers=LAYERS,
        num_key_value_heads=1,
    )
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (tokenizer_of / name).is_file():
            (folder / name).symlink_to((tokenizer_of / name).resolve())
    write_safetensors(folder / "model.safetensors", _weights(config["vocab_size"]))
    return folder
