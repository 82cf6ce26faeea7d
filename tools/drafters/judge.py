"""Acceptance length of a trained drafter: greedy chain drafting of k tokens against the real target on held-out prompts.

    .venv-peers/bin/python tools/drafters/judge.py --data work/speculators --model models/smollm2-135m-instruct \
        --drafter drafters/right-0 --continuations drafters/continuations.pt

The target continues the prompts of the export's eval side greedily, once; the file is kept. A round then begins with the tokens
that stand and one more that the target gave. The drafter, which has seen the target's true states so far, proposes k tokens, each
from its own last state and its own last token. Those that agree with the target's greedy continuation are accepted, and the
target adds one of its own: so a round gives accepted + 1 tokens, and the mean of that over all rounds is the acceptance length
(1 for a drafter that is never right, k + 1 for one that always is).
"""

import argparse
import json
import warnings
from pathlib import Path

import torch

from train import make_drafter, read_export

DRAFTED_TOKENS = 5
PROMPTS = 64
PROMPTS_AT_ONCE = 16
NEW_TOKENS = 96
LONGEST_PROMPT = 384


def prompts_of(folder):
    """The eval side's samples up to where their first answer begins."""
    import datasets

    rows = datasets.load_from_disk(str(folder))
    train_samples = json.loads((folder / "export.json").read_text(encoding="utf-8"))["totals"]["train_samples"]
    prompts = []
    for row in rows.select(range(train_samples, len(rows))):
        begin = int(row["loss_mask"].argmax())
        if 0 < begin <= LONGEST_PROMPT:
            prompts.append(row["input_ids"][:begin])
    return prompts[:PROMPTS]


def continue_greedily(model_folder, prompts, device):
    """The prompts with the target's greedy continuation, its auxiliary states, and where the continuation begins."""
    from transformers import AutoModelForCausalLM

    target = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval().to(device)
    layers = target.config.num_hidden_layers
    continued = []
    with torch.no_grad():
        for first in range(0, len(prompts), PROMPTS_AT_ONCE):
            for prompt, answer in answers_to(target, prompts[first : first + PROMPTS_AT_ONCE]):
                ids = torch.cat([prompt, answer])
                states = target.model(ids[None].to(device), output_hidden_states=True).hidden_states
                aux = torch.cat([states[k][0] for k in (2, layers // 2, layers - 3)], -1)
                continued.append({"ids": ids, "aux": aux.to(torch.bfloat16).cpu(), "begin": len(prompt)})
    return continued


def answers_to(target, prompts):
    """Each prompt with what the target answers, up to and with its stop token."""
    ends = target.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for i, prompt in enumerate(prompts):
        ids[i, longest - len(prompt) :], mask[i, longest - len(prompt) :] = prompt, 1
    answers = target.generate(ids.to(target.device), attention_mask=mask.to(target.device), do_sample=False,
                              max_new_tokens=NEW_TOKENS, pad_token_id=min(ends))[:, longest:].cpu()
    for prompt, answer in zip(prompts, answers, strict=True):
        stop = next((i + 1 for i, token in enumerate(answer.tolist()) if token in ends), len(answer))
        yield prompt, answer[:stop]


class Chain:
    """Drafts along one sequence. States of the tokens that stand are the target's; those of drafted tokens the drafter's own."""

    def __init__(self, drafter, ids, aux):
        from transformers import DynamicCache

        self.drafter, self.make_cache = drafter, DynamicCache
        positions = torch.arange(1, len(ids))[None]
        hidden = drafter.fc(aux[None, :-1])
        cache = DynamicCache()
        self.hidden = self._layer(ids[None, 1:], hidden, positions, cache)
        self.keys, self.values = cache.layers[0].keys, cache.layers[0].values

    def _layer(self, ids, hidden, positions, cache):
        inputs = torch.cat([self.drafter.embed_tokens(ids), hidden], -1)
        rotary = self.drafter.rotary_emb(inputs, positions)
        (layer,) = self.drafter.layers
        return layer(inputs, attention_mask=None, position_ids=positions, past_key_values=cache,
                     cache_position=positions[0] - 1, position_embeddings=rotary)

    def draft(self, standing, count):
        """`count` tokens after t[standing], the last that is known; states of positions before it are known too."""
        cache = self.make_cache()
        cache.update(self.keys[:, :, :standing], self.values[:, :, :standing], 0)
        hidden = self.hidden[:, standing - 1 : standing]
        tokens = []
        while True:
            chosen = self.drafter.lm_head(self.drafter.norm(hidden))[0, -1].argmax()
            tokens.append(int(chosen + self.drafter.d2t[chosen]))
            if len(tokens) == count:
                return tokens
            position = torch.tensor([[standing + len(tokens)]])
            hidden = self._layer(torch.tensor([[tokens[-1]]]), hidden, position, cache)


def acceptance(drafter, continued):
    rounds, accepted, by_place = 0, 0, [0] * DRAFTED_TOKENS
    with torch.no_grad():
        for sequence in continued:
            ids = sequence["ids"]
            chain = Chain(drafter, ids, sequence["aux"])
            standing = sequence["begin"]
            while standing + DRAFTED_TOKENS < len(ids):
                drafted = chain.draft(standing, DRAFTED_TOKENS)
                truth = ids[standing + 1 : standing + 1 + DRAFTED_TOKENS].tolist()
                right = next((i for i in range(DRAFTED_TOKENS) if drafted[i] != truth[i]), DRAFTED_TOKENS)
                for place in range(right):
                    by_place[place] += 1
                rounds, accepted, standing = rounds + 1, accepted + right, standing + right + 1
    return {
        "acceptance_length": 1 + accepted / rounds, "rounds": rounds, "drafted_tokens": DRAFTED_TOKENS,
        "accepted_by_place": [count / rounds for count in by_place], "prompts": len(continued),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="an export of draftmill for speculators, with an eval side")
    parser.add_argument("--model", type=Path, required=True, help="the target's folder")
    parser.add_argument("--drafter", type=Path, help="a folder that train.py made; an untrained drafter without it")
    parser.add_argument("--continuations", type=Path, required=True, help="kept here once they are made")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="of the target; drafting token by token stays on the CPU")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads)
    if not arguments.continuations.exists():
        arguments.continuations.parent.mkdir(parents=True, exist_ok=True)
        continued = continue_greedily(arguments.model, prompts_of(arguments.data), arguments.device)
        torch.save(continued, arguments.continuations)
    _, d2t, t2d = read_export(arguments.data)
    torch.manual_seed(0)
    drafter = make_drafter(arguments.model, d2t, t2d).eval()
    if arguments.drafter is not None:
        drafter.load_state_dict(torch.load(arguments.drafter / "drafter.pt", weights_only=True, map_location="cpu")["weights"])
    print(json.dumps(acceptance(drafter, torch.load(arguments.continuations, weights_only=True))), flush=True)


if __name__ == "__main__":
    main()
