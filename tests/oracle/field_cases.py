#!/usr/bin/env python3
"""Runs the test data's field cases of text (faults that users of other tools reported) through our code.

    python3 tests/oracle/field_cases.py --command build-text/draftmill
    python3 tests/oracle/field_cases.py --driver build-text/stages/tokenize/tokenize_lines

The command reads the files of the cases itself, so it alone runs the cases of rows to be read (oracle "file"). Exits 0
where all end as they must, 1 with the differences, 77 (skipped) where the test data is missing.
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
    for (begin, end), bit in zip(sample["offsets"], sample["loss_mask"], strict=True):
        if bit and before:
            pieces[-1] = (pieces[-1][0], end)
        elif bit:
            pieces.append((begin, end))
        before = bit
    return [data[begin:end].decode(errors="replace") for begin, end in pieces]


def widened_offsets(sample):
    """The byte ranges of the tokens, widened to whole characters."""
    data, widened = sample["text"].encode(), []
    for begin, end in sample["offsets"]:
        while begin > 0 and begin < len(data) and data[begin] & 0xC0 == 0x80:
            begin -= 1
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        widened.append([begin, end])
    return widened


def differences(right, sample):
    if "error" in right or right.get("rejected"):
        if "error" not in sample:
            return ["a refusal was expected"]
        message = right.get("message")
        return [] if message is None or message in sample["error"] else [f"message {sample}"]
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
    if "ids_runs" in right and [i for i, count in right["ids_runs"] for _ in range(count)] != sample["input_ids"]:
        found.append("input_ids differ from ids_runs")
    if "offsets" in right and right["offsets"] != widened_offsets(sample):
        found.append(f"offsets: {widened_offsets(sample)} is not {right['offsets']}")
    if "offset" in right and right["offset"] != sample["byte_offset"]:
        found.append(f"byte offset {sample['byte_offset']}, not {right['offset']}")
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


class ByDriver:
    """One row after the other through tokenize_lines."""

    oracles = ("chat", "encode")

    def __init__(self, path):
        self.driver = Driver(path)

    def samples(self, input_path, line, settings):
        config = {k: v for k, v in settings.items() if k not in ("template", "generation_block")}
        config.update(canonical=True, tokenizer=str(settings["tokenizer"]))
        if "template" in settings:
            config["template"] = template_text(settings["template"])
        ready = self.driver.ask({"config": config})
        if "error" in ready:
            return [ready]
        lines = input_lines(input_path.parent, input_path.name)
        answer = self.driver.ask({"row": json.loads(lines[line - 1].lstrip("\ufeff"))})
        return answer if isinstance(answer, list) else [answer]

    def close(self):
        return self.driver.close()


class ByCommand:
    """The whole file of a case through `draftmill tokenize`."""

    oracles = ("chat", "encode", "file")

    def __init__(self, path):
        self.path = path
        self.answers = {}

    def arguments(self, settings):
        arguments = ["--tokenizer", str(settings["tokenizer"])]
        for name, value in settings.items():
            if name == "template":
                arguments += ["--template", str(value)]
            elif name == "variables":
                for variable, content in value.items():
                    arguments += ["--set", f"{variable}={json.dumps(content)}"]
            elif name not in ("tokenizer", "generation_block"):
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                arguments += ["--param", f"{'template_now' if name == 'now' else name}={text}"]
        return arguments

    def samples(self, input_path, line, settings):
        command = [str(self.path), "tokenize", *self.arguments(settings), str(input_path)]
        if tuple(command) not in self.answers:
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode not in (0, 3):
                raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode()}")
            self.answers[tuple(command)] = [json.loads(text) for text in done.stdout.splitlines()]
        return [sample for sample in self.answers[tuple(command)] if sample["line"] == line]

    def close(self):
        return 0


def settings_of(data, folder, case, right, scratch):
    """The settings of a result, with the files that they name found."""
    settings = {**case.get("settings", {}), **right.get("settings", {})}
    for name in ("template", "tokenizer"):
        if name in settings:
            settings[name] = locate(data, folder, settings[name], scratch)
    if "tokenizer" not in settings:  # only the text matters
        settings["tokenizer"] = locate(data, folder, "tokenizers/gpt2/tokenizer.json", scratch)
        settings.pop("stop_tokens", None)
    if case["oracle"] == "file":
        settings["template"] = Path(scratch) / "rows.jinja"
        settings["template"].write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", encoding="utf-8")
        settings["min_supervised_tokens"] = 1
    return settings


def run_case(runner, data, path, scratch):
    """Yields the differences of each result of a case."""
    case = json.loads(path.read_text(encoding="utf-8"))
    if case["oracle"] not in runner.oracles:
        return
    for right in case["right"]["rows"]:
        if "row" in right:
            right["text"] = "".join(f"{m['role']}: {m['content']}\n" for m in right["row"]["messages"])
        settings = settings_of(data, path.parent, case, right, scratch)
        samples = runner.samples(path.parent / case["input"], right["line"], settings)
        variant = right.get("variant", 0)
        sample = next((s for s in samples if s.get("variant", 0) == variant), None)
        yield right["line"], ["no such row or variant"] if sample is None else acceptable(right, sample)


def main():
    parser = argparse.ArgumentParser()
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--driver", type=ByDriver, dest="runner")
    which.add_argument("--command", type=ByCommand, dest="runner")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or shutil.which("zstd") is None:
        print("skipped: no test data, or no zstd")
        return SKIPPED
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted((data / "field_cases/text").glob("*/case.json")):
            if arguments.only not in path.parent.name:
                continue
            for line, found in run_case(arguments.runner, data, path, scratch):
                passed += not found
                failed += bool(found)
                for difference in found:
                    print(f"{path.parent.name} line {line}: {difference}")
    status = arguments.runner.close()
    print(f"{passed} results right, {failed} wrong; the driver ended with {status}")
    return 0 if failed == 0 and status == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
