#!/usr/bin/env python3
"""Runs the test data's field cases of text (faults that users of other tools reported) through our code.

    python3 tests/oracle/field_cases.py --driver build-text/stages/tokenize/tokenize_lines

Cases of rows to be read (oracle "file") belong to ingest's own tests. Exits 0 where all end as they must, 1 with the
differences, 77 (skipped) where the test data is missing.
"""
import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from driver import Driver

SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]


def data_folder():
    folder = Path(os.environ.get("DRAFTMILL_TEST_DATA") or ROOT / "../shared/data")
    return folder if (folder / "field_cases/text").is_dir() else None


def locate(data, case, name, scratch):
    """A file of the case or of the test data; .zst files are unpacked."""
    for path in (case / name, data / name):
        if path.exists():
            return path
    packed = data / (name + ".zst")
    unpacked = Path(scratch) / name
    if not unpacked.exists():
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["zstd", "-q", "-d", str(packed), "-o", str(unpacked)], check=True)
    return unpacked


def template_text(path):
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))["chat_template"]
    return path.read_text(encoding="utf-8")


def input_lines(case, name):
    data = (case / name).read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    return data.decode("utf-8").split("\n")


def supervised_pieces(sample):
    data, pieces, before = sample["text"].encode(), [], 0
    for (begin, end), bit in zip(sample["offsets"], sample["loss_mask"]):
        if bit and before:
            pieces[-1] = (pieces[-1][0], end)
        elif bit:
            pieces.append((begin, end))
        before = bit
    return [data[begin:end].decode(errors="replace") for begin, end in pieces]


def differences(right, sample):
    if "error" in right or right.get("rejected"):
        if "error" not in sample:
            return ["a refusal was expected"]
        message = right.get("message")
        return [] if message is None or message in sample.get("message", sample["error"]) else [f"message {sample}"]
    if "error" in sample:
        return [f"refused: {sample}"]
    found = []
    for key in ("text", "input_ids", "loss_mask"):
        if key in right and right[key] != sample[key]:
            found.append(f"{key}: {sample[key]!r:.600} is not {right[key]!r:.600}")
    if "supervised" in right and supervised_pieces(sample) != right["supervised"]:
        found.append(f"supervised: {supervised_pieces(sample)} is not {right['supervised']}")
    for needle in right.get("must_not_contain", []):
        if needle in sample["text"]:
            found.append(f"contains {needle!r}")
    if "tokens" in right and len(sample["input_ids"]) != right["tokens"]:
        found.append(f"{len(sample['input_ids'])} tokens, not {right['tokens']}")
    return found


def acceptable(right, sample):
    """The design decides where a case allows two outcomes; only masks of templates without a stop token differ so."""
    other = right.get("also_accept")
    if other and "supervised" in other and "error" not in sample:
        merged = {k: v for k, v in right.items() if k != "loss_mask"}
        merged.update(other)
        return differences(merged, sample)
    return differences(right, sample)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or shutil.which("zstd") is None:
        print("skipped: no test data, or no zstd")
        return SKIPPED
    driver = Driver(arguments.driver)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted((data / "field_cases/text").glob("*/case.json")):
            case = json.loads(path.read_text(encoding="utf-8"))
            if case["oracle"] == "file" or arguments.only not in path.parent.name:
                continue
            lines = input_lines(path.parent, case["input"])
            answers = {}
            for right in case["right"]["rows"]:
                settings = {**case.get("settings", {}), **right.get("settings", {})}
                config = {k: v for k, v in settings.items() if k not in ("template", "tokenizer", "generation_block")}
                config["canonical"] = True
                if "template" in settings:
                    config["template"] = template_text(locate(data, path.parent, settings["template"], scratch))
                if "tokenizer" in settings:
                    config["tokenizer"] = str(locate(data, path.parent, settings["tokenizer"], scratch))
                else:
                    config["tokenizer"] = str(locate(data, path.parent, "tokenizers/gpt2/tokenizer.json", scratch))
                    config.pop("stop_tokens", None)
                key = json.dumps([config, right["line"]], sort_keys=True)
                if key not in answers:
                    ready = driver.ask({"config": config})
                    answers[key] = [ready] if "error" in ready else driver.ask({"row": json.loads(lines[right["line"] - 1].lstrip("\ufeff"))})
                samples = answers[key]
                if isinstance(samples, dict):
                    samples = [samples]
                variant = right.get("variant", 0)
                sample = next((s for s in samples if s.get("variant", 0) == variant), {"error": "no such variant"})
                found = acceptable(right, sample)
                passed += not found
                failed += bool(found)
                for line in found:
                    print(f"{path.parent.name} line {right['line']}: {line}")
    status = driver.close()
    print(f"{passed} results right, {failed} wrong; driver ended with {status}")
    return 0 if failed == 0 and status == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
