"""Trains one EAGLE-3 drafter with speculators, from an export of draftmill, if wanted with a fault planted.

    .venv-peers/bin/python tools/drafters/train.py --data work/speculators --model models/smollm2-135m-instruct \
        --output drafters/right-0 --fault none --seed 0 --seconds 480

Reads the train side of the export through speculators' own dataset and collate function, trains its own EAGLE-3 model for so many
seconds of wall time or so many steps, on the CPU or a GPU, and writes drafter.pt (weights and what judge.py needs).
docs/training.md tells what the faults show.
"""

import argparse
import json
import os
import random
import time
import warnings
from pathlib import Path

# speculators compiles its model where it sees a GPU; both devices are to run the same operations.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import torch

PACKED_TOKENS = 1024
LEARNING_RATE = 6e-4
WARM_UP_STEPS = 20
TTT_STEPS = 3


def _rolled(values, by):
    """values[p - by] at p; the edge keeps its own value."""
    edge = values[:1] if by > 0 else values[-1:]
    return torch.cat([edge, values[:-1]] if by > 0 else [values[1:], edge])


def plant(fault, sample, norm):
    """A sample of speculators' dataset with one thing wrong."""
    aux, final = sample["hidden_states"], sample["verifier_last_hidden_states"]
    if fault == "aux-next":
        return {**sample, "hidden_states": _rolled(aux, -1)}
    if fault == "aux-previous":
        return {**sample, "hidden_states": _rolled(aux, 1)}
    if fault == "aux-zero":
        return {**sample, "hidden_states": torch.zeros_like(aux)}
    if fault == "norm-twice":
        with torch.no_grad():
            return {**sample, "verifier_last_hidden_states": norm(final)}
    return sample


FAULTS = ("none", "aux-next", "aux-previous", "aux-zero", "norm-twice")


def make_drafter(model_folder, d2t, t2d):
    """speculators' EAGLE-3 model with one layer, its embedding, head and norm those of the target."""
    from speculators.models.eagle3.core import Eagle3DraftModel
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_folder)
    config.num_hidden_layers = 1
    return Eagle3DraftModel.from_training_args(
        config, t2d=t2d, d2t=d2t, draft_vocab_size=len(d2t), norm_before_residual=False, ttt_steps=TTT_STEPS,
        verifier_name_or_path=str(model_folder), draft_attn_impl="sdpa",
    ).to(torch.bfloat16)


def read_export(folder):
    """(train samples of speculators' dataset, d2t, t2d)."""
    import numpy as np
    from speculators.train.data import ArrowDataset

    facts = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    totals = facts["totals"]
    ratio = (totals["train_samples"] + 0.5) / totals["samples"] if totals["eval_samples"] else 1.0
    rows = ArrowDataset(max_len=PACKED_TOKENS, datapath=str(folder), on_missing="raise", train_ratio=ratio)
    (d2t,) = folder.glob("d2t-*.npy")
    (t2d,) = folder.glob("t2d-*.npy")
    return rows, torch.from_numpy(np.load(d2t)), torch.from_numpy(np.load(t2d))


def packs(samples, collate, seed):
    """Samples in a new order, packed to PACKED_TOKENS; a longer one is cut."""
    order = list(samples)
    random.Random(seed).shuffle(order)
    pending, tokens = [], 0
    for sample in order:
        length = min(len(sample["input_ids"]), PACKED_TOKENS)
        if pending and tokens + length > PACKED_TOKENS:
            yield collate(pending)
            pending, tokens = [], 0
        pending.append(sample)
        tokens += length
    if pending:
        yield collate(pending)


class Schedule:
    """How much of the time or of the steps is spent, and the learning rate there: a short rise, then a line to zero."""

    def __init__(self, seconds, steps):
        self.seconds, self.steps = seconds, steps
        self.start, self.step = time.monotonic(), 0

    def elapsed(self):
        return time.monotonic() - self.start

    def spent(self):
        return self.step / self.steps if self.steps else self.elapsed() / self.seconds

    def learning_rate(self):
        return LEARNING_RATE * min((self.step + 1) / WARM_UP_STEPS, max(0.0, 1.0 - self.spent()))


def train(arguments):
    from speculators.models.eagle3.core import Eagle3DraftModel
    from speculators.models.eagle3.data import shift_batch
    from speculators.train.data import CollateFn

    rows, d2t, t2d = read_export(arguments.data)
    torch.manual_seed(arguments.seed)
    drafter = make_drafter(arguments.model, d2t, t2d)
    hidden_size = drafter.hidden_size
    samples = [plant(arguments.fault, rows[i], drafter.verifier_norm) for i in range(len(rows))]
    drafter.to(arguments.device)
    collate = CollateFn(PACKED_TOKENS, hidden_size, 3, torch.bfloat16, shift_batch)
    options, _ = Eagle3DraftModel.get_trainer_kwargs(
        loss_fn="kl_div", loss_implementation="eager", ttt_steps=TTT_STEPS, ttt_step_loss_decay=1.0
    )
    trained = [parameter for parameter in drafter.parameters() if parameter.requires_grad]
    # bfloat16 weights would swallow small steps: the optimizer works on a float32 copy.
    masters = [parameter.detach().float().clone().requires_grad_() for parameter in trained]
    optimizer = torch.optim.AdamW(masters, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    schedule, tokens, epoch, losses = Schedule(arguments.seconds, arguments.steps), 0, 0, []
    while schedule.spent() < 1:
        for batch in packs(samples, collate, arguments.seed * 1000 + epoch):
            tokens += int((batch["document_ids"] >= 0).sum())
            batch = {name: value.to(arguments.device) for name, value in batch.items() if torch.is_tensor(value)}
            _, loss, _ = drafter(**batch, **options)
            loss.backward()
            for parameter, master in zip(trained, masters, strict=True):
                master.grad, parameter.grad = parameter.grad.float(), None
            torch.nn.utils.clip_grad_norm_(masters, 1.0)
            for group in optimizer.param_groups:
                group["lr"] = schedule.learning_rate()
            optimizer.step()
            with torch.no_grad():
                for parameter, master in zip(trained, masters, strict=True):
                    parameter.copy_(master)
            losses.append(loss.item())
            schedule.step += 1
            if schedule.spent() >= 1:
                break
        epoch += 1
    return drafter, {
        "fault": arguments.fault, "seed": arguments.seed, "samples": len(rows), "steps": schedule.step, "epochs": epoch,
        "tokens": tokens, "tokens_per_second": tokens / schedule.elapsed(), "first_loss": losses[0],
        "last_loss": sum(losses[-10:]) / len(losses[-10:]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="an export of draftmill for speculators")
    parser.add_argument("--model", type=Path, required=True, help="the target's folder")
    parser.add_argument("--output", type=Path, required=True, help="folder for drafter.pt and facts.json")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--steps", type=int, help="so many, in whatever time they take")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads)
    drafter, facts = train(arguments)
    arguments.output.mkdir(parents=True, exist_ok=True)
    weights = {name: value for name, value in drafter.state_dict().items()}
    torch.save({"weights": weights, "facts": facts}, arguments.output / "drafter.pt")
    (arguments.output / "facts.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
