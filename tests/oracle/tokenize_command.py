#!/usr/bin/env python3
"""`draftmill tokenize` from outside against jinja2, `tokenizers` and `tiktoken`: every tokenizer of the test data, each with a
template of its family, over the conversations of the other oracle tests and plain texts.

    .venv/bin/python tests/oracle/tokenize_command.py --command build-text/draftmill

Exits 0 where text, ids, byte ranges and refusals agree, 1 with the first differences, 77 (skipped) where the test data or a
package is missing.
"""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
try:
    import template_corpus as corpus
    from tokenizer_oracle import KIMI_NAMED, NORMALIZING, HuggingFaceOracle, KimiOracle, corpus_texts, random_texts, tiles, unpack, widened
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

TEMPLATES = {
    "gpt2": "Qwen-Qwen2.5-7B-Instruct", "qwen3": "Qwen-Qwen3-0.6B", "deepseek_v3": "deepseek-ai-DeepSeek-V3.1",
    "gptoss": "openai-gpt-oss-120b", "llama2": "mistralai-Ministral-3-14B-Reasoning-2512",
    "mistral03": "Mistral-Small-3.2-24B-Instruct-2506", "kimi_k2": "moonshotai-Kimi-K2",
}


def normalized(row):
    """The row as ingest's `normalize` leaves it."""
    row = json.loads(json.dumps(row))
    for message in row["messages"]:
        parts = message.get("content")
        if isinstance(parts, list) and all(part["type"] == "text" for part in parts):
            message["content"] = "".join(part["text"] for part in parts)
        for call in message.get("tool_calls") or []:
            arguments = call["function"]["arguments"]
            if isinstance(arguments, str) and arguments.startswith("{") and arguments.endswith("}"):
                call["function"]["arguments"] = json.loads(arguments)
    return row


def run(command, *arguments):
    done = subprocess.run([str(command), "tokenize", *map(str, arguments)], capture_output=True, check=False)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"{arguments} ended with {done.returncode}: {done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(name, line, text, ids, offsets):
    """What differs between a printed line and what it must be."""
    if line["text"] != text:
        return f"text {line['text'][:300]!r} is not {text[:300]!r}"
    if line["input_ids"] != ids:
        return f"ids of {text[:200]!r}: {line['input_ids'][:40]} is not {ids[:40]}"
    ours = [tuple(pair) for pair in line["offsets"]]
    if name not in NORMALIZING and not tiles(text, ours):
        return f"the byte ranges of {text[:200]!r} do not tile it"
    if name not in NORMALIZING and offsets is not None and widened(text, ours) != offsets:
        return f"byte ranges of {text[:200]!r}"
    return None


def conversations(command, name, oracle, template, folder, model):
    """Yields the differences of rendered conversations."""
    rows = [row for row in corpus.conversations() if any(m["role"] == "assistant" for m in row["messages"])]
    path = Path(folder) / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    source = template.read_text(encoding="utf-8")
    arguments = [*model, "--template", template, "--param", "expand=none", "--param", "min_supervised_tokens=1",
                 "--param", f"template_now={corpus.NOW}"]
    for key, value in corpus.BASE_VARIABLES.items():
        arguments += ["--set", f"{key}={json.dumps(value)}"]
    lines = run(command, *arguments, path)
    if [line["row"] for line in lines] != list(range(len(rows))):
        yield "not one line for each row"
        return
    for row, line in zip(rows, lines, strict=True):
        right = corpus.render(source, normalized(row), corpus.BASE_VARIABLES)
        if isinstance(right, Exception) or "error" in line:
            excused = line.get("reason") in ("generation_prompt", "no_supervised_token")
            if isinstance(right, Exception) != ("error" in line) and not excused:
                yield f"{line.get('error', 'no refusal')} beside {right!r:.200}"
            continue
        ((ids, offsets),) = oracle.encode([right])
        found = compare(name, line, right, ids, offsets)
        if found:
            yield found


def texts(command, name, oracle, folder, model, data):
    """Yields the differences of plain texts."""
    some = [text for text in corpus_texts(data) if text][:300] + list(random_texts(700, oracle.added, 11)) + [""]
    path = Path(folder) / "texts.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in some), encoding="utf-8")
    lines = run(command, *model, path)
    if len(lines) != len(some):
        yield "not one line for each text"
        return
    for text, line, (ids, offsets) in zip(some, lines, oracle.encode(some), strict=True):
        found = compare(name, line, text, ids, offsets)
        if found:
            yield found


def model_folder(name, path):
    """Kimi's names of reserved tokens stand in tokenizer_config.json, so that it needs a folder."""
    if name != "kimi_k2":
        return ["--tokenizer", path]
    tokens = {str(token): {"content": content, "special": True} for token, content in KIMI_NAMED.items()}
    (path.parent / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": tokens}), encoding="utf-8")
    return ["--model", path.parent]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--command", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--reports", type=int, default=10)
    arguments = parser.parse_args()
    data = corpus.data_folder()
    if data is None or shutil.which("zstd") is None:
        print("skipped: no test data, or no zstd")
        return SKIPPED
    failed = 0
    for name, template in TEMPLATES.items():
        if arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = unpack(data, name, folder)
            oracle = KimiOracle(path) if name == "kimi_k2" else HuggingFaceOracle(path)
            model = model_folder(name, path)
            found = list(conversations(arguments.command, name, oracle, data / f"chat_templates/{template}.jinja", folder, model))
            found += texts(arguments.command, name, oracle, folder, model, data)
        for difference in found[:arguments.reports]:
            print(f"{name}: {difference}")
        print(f"{name} with the template {template}: {len(found)} differences", flush=True)
        failed += bool(found)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
