#!/usr/bin/env python3
"""Hidden states of a few sentences as transformers computes them, for `draftmill doctor model --reference`.

    tools/reference_states.py --model DIR --output reference.safetensors [--layers 2,15,27,30] [--dtype float32] [--text FILE]

Each line of FILE is a row; without it a few sentences of several kinds are taken. The output is laid out as what
`draftmill states` writes (docs/formats.md): x_k of every asked layer, x_n before the final norm. Needs torch, transformers
and safetensors; loads the whole model.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, and then it runs away as fast as it can.",
    "Water boils at one hundred degrees Celsius at sea level, but on a high mountain it boils at a lower temperature.",
    "def add(a, b):\n    \"\"\"Return the sum of two numbers.\"\"\"\n    return a + b\n\n\nprint(add(2, 3))\n",
    "Paris is the capital of France, Rome is the capital of Italy, and Madrid is the capital of Spain.",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16",
]


def default_layers(depth):
    return [2, depth // 2, depth - 3, depth] if depth >= 7 else list(range(depth + 1))


def states_of(model, ids, layers):
    """[tokens, layers, hidden]; x_n is what enters the final norm."""
    body = model.get_decoder()
    last = []
    hook = body.norm.register_forward_pre_hook(lambda module, inputs: last.append(inputs[0]))
    try:
        with torch.inference_mode():
            hidden = body(input_ids=torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states
    finally:
        hook.remove()
    states = list(hidden[:-1]) + last
    return torch.stack([states[layer][0] for layer in layers], dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--layers", help="k of x_k, ascending, with commas between")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--text", help="a file with one row on each line")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=getattr(torch, arguments.dtype)).eval()
    depth = model.config.get_text_config().num_hidden_layers
    layers = [int(layer) for layer in arguments.layers.split(",")] if arguments.layers else default_layers(depth)
    texts = Path(arguments.text).read_text(encoding="utf-8").splitlines() if arguments.text else SENTENCES
    rows = [ids for ids in (tokenizer(text)["input_ids"] for text in texts) if ids]
    bounds = [0]
    for ids in rows:
        bounds.append(bounds[-1] + len(ids))
    tensors = {
        "hidden_states": torch.cat([states_of(model, ids, layers) for ids in rows]).contiguous(),
        "input_ids": torch.tensor([token for ids in rows for token in ids], dtype=torch.int32),
        "cu_seqlens": torch.tensor(bounds, dtype=torch.int64),
    }
    save_file(tensors, arguments.output, metadata={"layers": json.dumps(layers), "layer_index": "hf", "final_norm": "pre",
                                                   "dtype": arguments.dtype})
    print(f"{len(rows)} rows, {bounds[-1]} tokens, layers {layers}: {arguments.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
