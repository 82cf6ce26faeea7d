"""Samples in a neutral form, from the shards and from transformers, and what can go wrong with them."""

from dataclasses import dataclass, replace

import torch
from draftmill import Dataset
from draftmill.torch_data import bfloat16_tensor


@dataclass(frozen=True)
class NeutralSample:
    """Unshifted; states in bfloat16."""

    name: str
    ids: torch.Tensor  # int64 [T]
    mask: torch.Tensor  # int64 [T]
    aux: torch.Tensor  # [T, 3, H]: x_2, x_{n/2}, x_{n-3}
    final_pre: torch.Tensor  # [T, H]: x_n
    final_post: torch.Tensor  # [T, H]: after the norm
    other_aux: torch.Tensor | None = None  # [T, 3, H]: x_3, x_{n/2+1}, x_{n-2}
    lower_aux: torch.Tensor | None = None  # [T, 3, H]: x_1, x_{n/2-1}, x_{n-4}


def stored_samples(work, count):
    before, after = Dataset(work), Dataset(work, final_norm="post")
    samples = []
    for row in range(count):
        sample = before[row]
        samples.append(
            NeutralSample(
                name=f"{sample.key.sample_id:09}-{sample.key.variant}",
                ids=torch.from_numpy(sample.input_ids).long(),
                mask=torch.from_numpy(sample.loss_mask).long(),
                aux=bfloat16_tensor(sample.aux).clone(),
                final_pre=bfloat16_tensor(sample.final).clone(),
                final_post=bfloat16_tensor(after[row].final).clone(),
            )
        )
    return samples


def load_model(folder, dtype):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def all_states(model, ids):
    """x_0 to x_n before the norm, and the state after it; float or bfloat16 as the model is."""
    caught = {}
    hook = model.model.norm.register_forward_pre_hook(lambda _, inputs: caught.__setitem__("x_n", inputs[0].detach()))
    with torch.no_grad():
        states = model.model(ids[None], output_hidden_states=True).hidden_states
    hook.remove()
    return [*(state[0] for state in states[:-1]), caught["x_n"][0]], states[-1][0]


def transformers_samples(folder, stored):
    model = load_model(folder, torch.bfloat16)
    layers = model.config.num_hidden_layers
    kept = (2, layers // 2, layers - 3)
    samples = []
    for sample in stored:
        states, post = all_states(model, sample.ids)

        def aux(shift, states=states):
            return torch.stack([states[k + shift] for k in kept], 1).clone()

        samples.append(
            replace(sample, aux=aux(0), final_pre=states[-1].clone(), final_post=post.clone(), other_aux=aux(1), lower_aux=aux(-1))
        )
    return samples


# What people mix up. Each takes and gives a neutral sample.
FAULTS = {
    "final state on the wrong side of the norm": lambda s: replace(s, final_pre=s.final_post, final_post=s.final_pre),
    "aux from p+1": lambda s: replace(s, aux=torch.cat([s.aux[1:], s.aux[-1:]])),
    "aux from p-1": lambda s: replace(s, aux=torch.cat([s.aux[:1], s.aux[:-1]])),
    "aux one layer too high": lambda s: replace(s, aux=s.other_aux),
    "aux one layer too low": lambda s: replace(s, aux=s.lower_aux),
    "mask shifted": lambda s: replace(s, mask=torch.roll(s.mask, 1)),
    "zeroed aux": lambda s: replace(s, aux=torch.zeros_like(s.aux)),
}
