"""Trains drafters on right and on faulty data and judges all of them by acceptance length: the proof of docs/training.md.

    .venv-peers/bin/python tools/drafters/prove.py --data work/speculators --model models/smollm2-135m-instruct \
        --output work/drafters --minutes 85

Right data and aux from p+1 with three seeds each, the other faults with one. What was finished by an earlier call stays. Ends with 1
where right data does not lead every fault by more than its seeds' spread.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLAN = [(fault, seed) for fault in ("none", "aux-next") for seed in range(3)]
PLAN += [("aux-previous", 0), ("aux-zero", 0), ("norm-twice", 0)]
# Of the whole time: loading, the target's continuations and judging.
OTHER_SHARE = 0.15


def call(script, *arguments):
    finished = subprocess.run([sys.executable, HERE / script, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(finished.stdout.splitlines()[-1])


def judged(arguments, fault, seed, seconds):
    """The drafter's facts and acceptance; trained and judged where that was not done."""
    folder = arguments.output / f"{fault}-{seed}"
    report = folder / "report.json"
    if report.is_file():
        return json.loads(report.read_text(encoding="utf-8"))
    shared = ("--data", arguments.data, "--model", arguments.model)
    facts = call("train.py", *shared, "--output", folder, "--fault", fault, "--seed", seed, "--seconds", seconds)
    facts |= call("judge.py", *shared, "--drafter", folder, "--continuations", arguments.output / "continuations.pt")
    report.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return facts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=85)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    seconds = arguments.minutes * 60 * (1 - OTHER_SHARE) / len(PLAN)
    lengths = {}
    print("| fault | seed | steps | last loss | acceptance length |\n|---|---|---|---|---|", flush=True)
    for fault, seed in PLAN:
        facts = judged(arguments, fault, seed, seconds)
        lengths.setdefault(fault, []).append(facts["acceptance_length"])
        print(f"| {fault} | {seed} | {facts['steps']} | {facts['last_loss']:.3f} | {facts['acceptance_length']:.3f} |", flush=True)
    right = lengths.pop("none")
    spread = max(right) - min(right)
    best_fault = max(max(values) for values in lengths.values())
    print(f"right data {min(right):.3f} to {max(right):.3f} (spread {spread:.3f}), best fault {best_fault:.3f}")
    sys.exit(0 if min(right) - best_fault > spread else 1)


if __name__ == "__main__":
    main()
