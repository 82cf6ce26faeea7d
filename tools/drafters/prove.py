"""Trains drafters on right and on faulty data and judges all of them by acceptance length: the proof of docs/training.md.

    .venv-peers/bin/python tools/drafters/prove.py --data work/speculators --model models/smollm2-135m-instruct \
        --output work/drafters --minutes 85

Right data and aux from p+1 with three seeds each, the other faults with one. What was finished by an earlier call stays. On a GPU
give each drafter so many steps and train several at once: `--device cuda --steps 3000 --jobs 9`. Ends with 1 where right data does
not lead every fault by more than its seeds' spread.
"""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEEDS = 3
PLAN = [(fault, seed) for fault in ("none", "aux-next") for seed in range(SEEDS)]
PLAN += [("aux-previous", 0), ("aux-zero", 0), ("norm-twice", 0)]
# Of the whole time: loading, the target's continuations and judging.
OTHER_SHARE = 0.15


def call(script, *arguments):
    command = [sys.executable, HERE / script, *map(str, arguments)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


class Proof:
    def __init__(self, arguments):
        self.output = arguments.output
        self.shared = ("--data", arguments.data, "--model", arguments.model, "--device", arguments.device)
        self.shared += ("--threads", arguments.threads)
        seconds = arguments.minutes * 60 * (1 - OTHER_SHARE) * arguments.jobs / len(PLAN)
        self.length = ("--steps", arguments.steps) if arguments.steps else ("--seconds", seconds)

    def judge(self, *drafter):
        return call("judge.py", *self.shared, *drafter, "--continuations", self.output / "continuations.pt")

    def judged(self, fault, seed, untrained):
        """The drafter's facts and acceptance; trained and judged where that was not done."""
        folder = self.output / f"{fault}-{seed}"
        report = folder / "report.json"
        if report.is_file():
            return json.loads(report.read_text(encoding="utf-8"))
        facts = call("train.py", *self.shared, "--output", folder, "--fault", fault, "--seed", seed, *self.length)
        untrained.result()  # it makes the continuations, which all share
        facts |= self.judge("--drafter", folder)
        report.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        return facts


def show(fault, seed, facts):
    by_place = " ".join(f"{share:.2f}" for share in facts["accepted_by_place"])
    loss = f"{facts['last_loss']:.3f}" if "last_loss" in facts else "-"
    print(f"| {fault} | {seed} | {facts.get('steps', 0)} | {loss} | {facts['acceptance_length']:.3f} | {by_place} |", flush=True)


def leads(lengths):
    """Whether right data leads every fault by more than its seeds' spread; says so."""
    right = lengths.pop("none")
    spread = max(right) - min(right)
    best_fault = max(max(values) for values in lengths.values())
    print(f"right data {min(right):.3f} to {max(right):.3f} (spread {spread:.3f}), best fault {best_fault:.3f}")
    return min(right) - best_fault > spread


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=85)
    parser.add_argument("--steps", type=int, help="so many for each drafter, in whatever time they take")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="drafters at once")
    parser.add_argument("--threads", type=int, default=2, help="of each")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    proof, lengths = Proof(arguments), {}
    print("| fault | seed | steps | last loss | acceptance length | accepted at the 1st to 5th place |\n|---|---|---|---|---|---|", flush=True)
    with ThreadPoolExecutor(1) as judges, ThreadPoolExecutor(arguments.jobs) as trainers:
        untrained = judges.submit(proof.judge)
        drafters = [(fault, seed, trainers.submit(proof.judged, fault, seed, untrained)) for fault, seed in PLAN]
        show("(untrained)", 0, untrained.result())
        for fault, seed, facts in drafters:
            lengths.setdefault(fault, []).append(facts.result()["acceptance_length"])
            show(fault, seed, facts.result())
    sys.exit(0 if leads(lengths) else 1)


if __name__ == "__main__":
    main()
