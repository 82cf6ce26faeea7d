#!/usr/bin/env python3
"""Our tokenizer against `tokenizers` and `tiktoken`: same texts, same run, one thread; prints one table of ratios.

    .venv/bin/python tests/bench_tokenizers.py --program build/stages/tokenize/tokenizer/tokenizer_bench

Texts are made from the test data (DRAFTMILL_TEST_DATA): English prose and code from conversations, Chinese and mixed
scripts from MGSM. Each figure is the best of several passes over all documents of a kind,
in processor time, so that a busy machine does less harm.
"""
import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).parent / "oracle"))
from tokenizer_oracle import NAMES, HuggingFaceOracle, KimiOracle, json_values, strings_of, unpack

KINDS = ["english", "code", "chinese", "mixed"]
PASSES = 5
# One mebibyte each, on one line: what should cost at most five times a byte of prose.
ADVERSARIAL = {"one letter": "a", "spaces": " ", "digits": "7", "emoji": "\U0001f600", "marks": "\u0301",
               "letters": "qwertyuiopzxcvbnmlkjhgfdsa", "han": "中文字"}


def make_texts(data):
    """Documents of each kind, without repetition."""
    conversations = data / "conversations"

    def strings(*paths):
        found = {}
        for path in paths:
            found.update(dict.fromkeys(s for s in strings_of(json_values((conversations / path).read_text())) if len(s) > 40))
        return list(found)

    def rows(language):
        lines = (conversations / f"mgsm/mgsm_{language}.tsv").read_text().splitlines()
        return ["\n".join(lines[i:i + 8]) for i in range(0, len(lines), 8)]

    english = strings(*(f"eagle_bench/{n}.jsonl" for n in ("alpaca", "gsm8k", "mt_bench", "mt_bench_gpt4_reference")),
                      "llamafactory/glaive_toolcall_en_demo.json")
    human_eval = gzip.decompress((conversations / "humaneval/HumanEval.jsonl.gz").read_bytes()).decode()
    code = [r["prompt"] + r["canonical_solution"] + r["test"] for r in map(json.loads, human_eval.splitlines())]
    mixed = [text for group in zip(rows("zh"), rows("en"), rows("ja"), rows("th"), strict=False) for text in group]
    return {"english": [t for t in english if t.isascii()], "code": code, "chinese": rows("zh"), "mixed": mixed}


def best_rate(encode, documents):
    """Megabytes a second of the best pass."""
    size = sum(len(d.encode()) for d in documents)
    best = 0.0
    for _ in range(PASSES):
        start = time.process_time()
        encode(documents)
        best = max(best, size / (time.process_time() - start) / 1e6)
    return best


def their_rates(data, texts, folder):
    """{name: ({kind: MB/s}, load seconds)} of the Python originals."""
    rates = {}
    for name in NAMES:
        path = unpack(data, name, folder)
        start = time.process_time()
        oracle = KimiOracle(path) if name == "kimi_k2" else HuggingFaceOracle(path)
        load = time.process_time() - start
        if name == "kimi_k2":
            def encode(documents, model=oracle.encoding):
                for document in documents:
                    model.encode(document, allowed_special="all")
        else:
            def encode(documents, model=oracle.tokenizer):
                model.encode_batch(documents, add_special_tokens=False)
        rates[name] = ({kind: best_rate(encode, texts[kind]) for kind in KINDS}, load)
    return rates


def our_rates(program, texts, folder):
    """The same of ours."""
    for kind in KINDS:
        (Path(folder) / f"{kind}.txt").write_text("\0".join(texts[kind]))
    for kind, part in ADVERSARIAL.items():
        (Path(folder) / f"{kind}.txt").write_text(part * (2**20 // len(part.encode())))
    output = subprocess.run([program, "--benchmark_format=json", "--benchmark_min_time=0.2"], check=True,
                            stdout=subprocess.PIPE, env={**os.environ, "DRAFTMILL_BENCH_TEXTS": str(folder)}).stdout
    rates = {name: ({}, 0.0) for name in NAMES}
    loads = {}
    for row in json.loads(output)["benchmarks"]:
        what, name, *kind = row["name"].split("/")
        if what == "load":
            loads[name] = row["cpu_time"] / 1e3
        else:
            rates[name][0][kind[0]] = row["bytes_per_second"] / 1e6
    return {name: (rates[name][0], loads[name]) for name in NAMES}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, help="tokenizer_bench")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DRAFTMILL_TEST_DATA", "../shared/data")))
    arguments = parser.parse_args()
    texts = make_texts(arguments.data)
    print("; ".join(f"{kind}: {len(texts[kind])} documents, {sum(len(t.encode()) for t in texts[kind]) / 1e6:.2f} MB"
                    for kind in KINDS))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as text_folder:
        ours = our_rates(arguments.program, texts, text_folder)
        theirs = their_rates(arguments.data, texts, folder)
    print("\nMB/s, ours / theirs (ratio). Theirs is `tokenizers`, for kimi_k2 `tiktoken`. Load in ms.\n")
    print("| tokenizer | " + " | ".join(KINDS) + " | load |")
    print("|---" * (len(KINDS) + 2) + "|")
    for name in NAMES:
        cells = [f"{ours[name][0][k]:.0f} / {theirs[name][0][k]:.1f} ({ours[name][0][k] / theirs[name][0][k]:.1f}x)" for k in KINDS]
        load = f"{ours[name][1] * 1e3:.0f} / {theirs[name][1] * 1e3:.0f} ({theirs[name][1] / ours[name][1]:.1f}x)"
        print(f"| {name} | " + " | ".join(cells) + f" | {load} |")
    print("\nCost of a byte of one mebibyte of the same over that of English.\n")
    print("| tokenizer | " + " | ".join(ADVERSARIAL) + " |")
    print("|---" * (len(ADVERSARIAL) + 1) + "|")
    for name in NAMES:
        rates = ours[name][0]
        print(f"| {name} | " + " | ".join(f"{rates['english'] / rates[kind]:.1f}" for kind in ADVERSARIAL) + " |")


if __name__ == "__main__":
    main()
