#!/usr/bin/env python3
"""Quantised checkpoints against the same checkpoints expanded by independent code: the states must be the same bytes.

    quantised_weights.py --draftmill build/draftmill [--device cuda]

Each model is written twice: quantised, and with the values that the format's own package gives (transformers for block FP8
and MXFP4; compressed-tensors for int4 where it is installed, else torch alone) as plain bfloat16. Exit: 0 all hold, 1 not.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import tiny_models

ROWS = [[3, 1, 4, 1, 5, 9, 2, 6], list(range(60, 190, 2)), [7]]
FP8_BLOCK = (24, 20)
GROUP = 32


def fp8(weight):
    """(stored tensors, value): e4m3 with one scale for each block, the last blocks ragged."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    rows, columns = weight.shape
    scales = torch.empty(-(-rows // FP8_BLOCK[0]), -(-columns // FP8_BLOCK[1]))
    stored = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
    for r in range(scales.shape[0]):
        for c in range(scales.shape[1]):
            block = (slice(r * FP8_BLOCK[0], (r + 1) * FP8_BLOCK[0]), slice(c * FP8_BLOCK[1], (c + 1) * FP8_BLOCK[1]))
            scales[r, c] = weight[block].float().abs().max() / 448
            stored[block] = (weight[block].float() / scales[r, c]).to(torch.float8_e4m3fn)
    wide = scales.repeat_interleave(FP8_BLOCK[0], 0)[:rows].repeat_interleave(FP8_BLOCK[1], 1)[:, :columns]
    value = (stored.float() * wide).to(torch.bfloat16)
    if rows % FP8_BLOCK[0] == 0 and columns % FP8_BLOCK[1] == 0:
        theirs = Fp8Dequantize(None)._dequantize_one(stored, scales)
        assert torch.equal(theirs.to(torch.bfloat16), value)
    return {"weight": stored, "weight_scale_inv": scales}, value


def int4(weight, scale_type=torch.bfloat16):
    rows, columns = weight.shape
    groups = weight.float().view(rows, columns // GROUP, GROUP)
    scales = (groups.abs().amax(-1) / 7).to(scale_type)
    quantised = (groups / scales.float()[..., None]).round().clamp(-8, 7).to(torch.int8)
    value = (quantised.to(scale_type) * scales[..., None]).view(rows, columns)  # as compressed-tensors multiplies
    quantised = quantised.view(rows, columns)
    packed = pack_with_package(quantised)
    if packed is None:
        nibbles = (quantised.to(torch.int64) + 8).view(rows, columns // 8, 8)
        words = (nibbles << (4 * torch.arange(8))).sum(-1)
        packed = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    return {"weight_packed": packed, "weight_scale": scales, "weight_shape": torch.tensor([rows, columns])}, value


def pack_with_package(quantised):
    with contextlib.suppress(ImportError):
        from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
        return pack_to_int32(quantised, 4).contiguous()
    return None


def mxfp4(experts):
    """experts: [E, inputs, outputs] as gpt-oss publishes them. Random codes stand in for a quantiser."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    count, inputs, outputs = experts.shape
    generator = torch.Generator().manual_seed(inputs)
    blocks = torch.randint(0, 256, (count, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(121, 126, (count, outputs, inputs // 32), generator=generator, dtype=torch.uint8)
    return {"_blocks": blocks, "_scales": scales}, convert_moe_packed_tensors(blocks, scales)


def linear_modules(tensors, skip):
    for name in sorted(tensors):
        if name.endswith(("_proj.weight", "_proj_with_mqa.weight")) and not any(part in name for part in skip):
            yield name.removesuffix(".weight")


# int4: (type of the scales, what the quantisation leaves out besides the head)
INT4 = {
    "int4": (torch.bfloat16, ("self_attn", "shared_experts")),
    "int4 with F16 scales": (torch.float16, ("self_attn", "shared_experts")),
    "int4 with F32 scales": (torch.float32, ("self_attn", "shared_experts")),
    "int4 but for down_proj": (torch.bfloat16, ("self_attn", "shared_experts", "down_proj")),
    "int4 but for the dense MLPs": (torch.bfloat16, ("self_attn", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")),
}


def write_pair(folder, config, method):
    """Writes folder/quantised and folder/plain."""
    tiny_models.make_checkpoint(folder / "source", config)
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(folder / "source/model.safetensors").items()}
    stored, plain = dict(tensors), dict(tensors)
    if method == "mxfp4":
        for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
            parts, value = mxfp4(stored.pop(name))
            stored.update({name + suffix: part for suffix, part in parts.items()})
            plain[name] = value.contiguous()
        section = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    else:
        scale_type, skip = INT4.get(method, (None, ()))
        for module in list(linear_modules(tensors, skip)):
            weight = stored.pop(module + ".weight")
            parts, value = fp8(weight) if scale_type is None else int4(weight, scale_type)
            stored.update({module + "." + suffix: part for suffix, part in parts.items()})
            plain[module + ".weight"] = value
        section = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": list(FP8_BLOCK)}
        if scale_type is not None:
            weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
            section = {"quant_method": "compressed-tensors", "format": "pack-quantized",
                       "ignore": ["lm_head", *(f"re:.*{part}.*" for part in skip)],
                       "config_groups": {"experts": {"targets": ["Linear"], "weights": weights}}}
    description = json.loads((folder / "source/config.json").read_text())
    description["dtype"] = "bfloat16"
    for name, content, extra in (("quantised", stored, {"quantization_config": section}), ("plain", plain, {})):
        (folder / name).mkdir()
        save_file({key: tensor.contiguous() for key, tensor in content.items()}, folder / name / "model.safetensors")
        (folder / name / "config.json").write_text(json.dumps({**description, **extra}))


def states(arguments, folder, layers, weights, dtype):
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in ROWS))
    output = folder / f"{weights}.safetensors"
    subprocess.run([arguments.draftmill, "states", "--model", folder, "--input", rows, "--output", output, "--weights", weights,
                    "--layers", ",".join(map(str, range(layers + 1))), "--dtype", dtype, "--device", arguments.device],
                   check=True, stdout=subprocess.DEVNULL)
    return load_file(output)["hidden_states"].view(torch.int16)


MODELS = [
    ("qwen3", "fp8", {"intermediate_size": 120, "hidden_size": 80}),
    ("llama", "int4", {"intermediate_size": 128, "hidden_size": 64}),
    ("qwen3_moe", "fp8", {}),
    ("qwen3_moe", "int4", {"moe_intermediate_size": 64, "intermediate_size": 128}),
    ("deepseek_v3", "fp8", {}),
    ("deepseek_v3", "int4", {"moe_intermediate_size": 64, "intermediate_size": 128}),
    ("gpt_oss", "mxfp4", {}),
    ("llama", "int4 with F16 scales", {"intermediate_size": 128}),
    ("llama", "int4 with F32 scales", {"intermediate_size": 128}),
    ("deepseek_v3", "int4 with F16 scales", {"moe_intermediate_size": 64, "intermediate_size": 128}),
    ("deepseek_v3", "int4 with F32 scales", {"moe_intermediate_size": 64, "intermediate_size": 128}),
    ("qwen3_moe", "int4 but for down_proj", {"moe_intermediate_size": 64, "intermediate_size": 128}),
    ("deepseek_v3", "int4 but for the dense MLPs", {"moe_intermediate_size": 64, "intermediate_size": 128}),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draftmill", required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    good = True
    for family, method, changes in MODELS:
        config = getattr(tiny_models, family)(**changes)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            write_pair(folder, config, method)
            depth, same = config.num_hidden_layers, []
            for dtype in ("bfloat16", "float32") if arguments.device == "cpu" else ("bfloat16",):
                expected = states(arguments, folder / "plain", depth, "resident", dtype)
                same += [torch.equal(states(arguments, folder / "quantised", depth, weights, dtype), expected)
                         for weights in ("resident", "streamed")]
        good &= all(same)
        print(f"{family} {method}: {'the same bytes' if all(same) else 'FAILED'}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
