#!/usr/bin/env python3
"""A trained model of 260 thousand weights (stories260K, from its GGUF): states and self-check on text that it wrote itself.

    stories_parity.py --draftmill build/draftmill

transformers samples some stories; `draftmill doctor model` compares its states with transformers' own and reads the head.
In float32 every token's relative error must stay under 1e-5, and the head must agree clearly. Exit: 0 holds, 1 not, 77 skipped.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_demo_model  # noqa: E402
import reference_states  # noqa: E402
from gguf_reader import GgufFile  # noqa: E402

DATA = Path(os.environ.get("DRAFTMILL_TEST_DATA") or ROOT / "../shared/data")
MODEL = DATA / "models" / "stories260K.gguf"


class WithoutHead:
    """The GGUF as the demo model's converter knows one: its head is a tensor of its own here."""

    def __init__(self, gguf):
        self.metadata, self.tensor = gguf.metadata, gguf.tensor
        self.tensors = {name: place for name, place in gguf.tensors.items() if name != "output.weight"}


def convert(folder):
    with GgufFile(MODEL) as gguf:
        facts = {"tokenizer.ggml.padding_token_id": None, "llama.attention.head_count_kv": gguf.metadata["llama.attention.head_count"],
                 "llama.rope.freq_base": 10000.0, "llama.vocab_size": len(gguf.metadata["tokenizer.ggml.tokens"]), **gguf.metadata}
        gguf.metadata.update(facts)
        tensors = list(make_demo_model.model_tensors(WithoutHead(gguf)))
        config = {**make_demo_model.model_config(facts), "pad_token_id": None}
        if "output.weight" in gguf.tensors:
            tensors.append(("lm_head.weight", gguf.tensor("output.weight")))
            config["tie_word_embeddings"] = False
        make_demo_model.write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))


def write_reference(folder, path):
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    torch.manual_seed(0)
    rows = [model.generate(torch.tensor([[1]]), do_sample=True, max_new_tokens=120, pad_token_id=0)[0].tolist() for _ in range(6)]
    layers = list(range(model.config.num_hidden_layers + 1))
    bounds = [0]
    for ids in rows:
        bounds.append(bounds[-1] + len(ids))
    save_file({"hidden_states": torch.cat([reference_states.states_of(model, ids, layers) for ids in rows]).contiguous(),
               "input_ids": torch.tensor([token for row in rows for token in row], dtype=torch.int32), "cu_seqlens": torch.tensor(bounds)},
              path, metadata={"layers": json.dumps(layers)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draftmill", required=True)
    arguments = parser.parse_args()
    if not MODEL.is_file():
        print(f"skipped: {MODEL} is absent")
        return 77
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="draftmill-stories-") as name:
        folder = Path(name)
        convert(folder)
        write_reference(folder, folder / "reference.safetensors")
        done = subprocess.run([arguments.draftmill, "doctor", "model", folder, "--reference", folder / "reference.safetensors",
                               "--dtype", "float32", "--json"], check=False, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        print(done.stderr)
        return 1
    found = json.loads(done.stdout)["examination"]
    largest = max(layer["largest_distance"] for layer in found["layers"])
    agreement = found["head_agreement"]
    print(f"{found['tokens']} tokens, largest relative error {largest:.1e}; {found['verdict']}; {agreement}")
    return 0 if largest <= 1e-5 and found["sound"] else 1


if __name__ == "__main__":
    sys.exit(main())
