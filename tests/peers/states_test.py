"""The exported states against transformers: the head's answers, and which layer each slot holds."""

import json

import torch
from conftest import MODEL
from features import all_states, load_model
from safetensors.torch import load_file


def exported_states(folder):
    """(ids, mask, states [T, 4, H]) of each row of an export for speculators."""
    import datasets

    rows = datasets.load_from_disk(str(folder))
    for i, row in enumerate(rows):
        data = load_file(folder / "hidden_states" / f"hs_{i}.safetensors")
        yield row["input_ids"], row["loss_mask"].bool(), data["hidden_states"]


def test_the_head_gives_the_targets_answers(export):
    """argmax from the exported final state against transformers in float32."""
    exact, rounded = load_model(MODEL, torch.float32), load_model(MODEL, torch.bfloat16)
    norm, head = exact.model.norm, exact.lm_head
    clear = clear_right = positions = right = rounded_right = 0
    with torch.no_grad():
        for ids, mask, states in exported_states(export("speculators")):
            logits = exact(ids[None]).logits[0]
            truth = logits.argmax(-1)
            ours = head(norm(states[:, -1].float())).argmax(-1)
            theirs = head(all_states(rounded, ids)[1].float()).argmax(-1)
            top = logits.topk(2, -1).values
            wide = mask & (top[:, 0] - top[:, 1] > 0.25)
            clear += int(wide.sum())
            clear_right += int((ours[wide] == truth[wide]).sum())
            positions += int(mask.sum())
            right += int((ours[mask] == truth[mask]).sum())
            rounded_right += int((theirs[mask] == truth[mask]).sum())
    print(f"argmax: {clear_right / clear:.4%} of {clear} clear positions, {right / positions:.4%} of all {positions}; "
          f"transformers in bfloat16 {rounded_right / positions:.4%}")
    assert clear_right >= 0.998 * clear
    assert abs(right - rounded_right) <= 0.005 * positions


def test_each_slot_is_nearest_to_its_layer(export):
    """x_k by the trainer's own rule: inputs of layers, the last one the final state before the norm."""
    facts = json.loads((export("speculators") / "export.json").read_text(encoding="utf-8"))
    exact = load_model(MODEL, torch.float32)
    layers = exact.config.num_hidden_layers
    assert facts["layers"] == [2, layers // 2, layers - 3, layers]
    errors = {slot: [] for slot in range(4)}
    for ids, _, states in exported_states(export("speculators")):
        truth, _ = all_states(exact, ids)
        for slot, k in enumerate(facts["layers"]):
            near = range(k - 1, min(k + 2, layers + 1))
            ours = states[:, slot].float()
            distance = {j: (ours - truth[j]).norm(dim=-1) / truth[j].norm(dim=-1) for j in near}
            assert min(near, key=lambda j: float(distance[j].median())) == k
            errors[slot].append(distance[k])
    for slot, parts in errors.items():
        error = torch.cat(parts)
        print(f"x_{facts['layers'][slot]}: median {error.median():.4f}, 99 % {error.quantile(0.99):.4f}")
        assert error.median() < 0.02 and error.quantile(0.99) < 0.1
