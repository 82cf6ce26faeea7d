#!/usr/bin/env python3
"""How fast text goes from source files to the corpus: `draftmill run --until vocab_map`, with one thread and with two.

    .venv/bin/python tests/bench_text.py --binary build/draftmill

Rows are the conversations of the test data (DRAFTMILL_TEST_DATA), repeated with a number in each question until there are
enough; the model is tiny and has the tokenizer of Qwen3 and its chat template. "Text" is the rendered text that was tokenized.
Before that, of the stage alone: rendering with mask beside tokenizing, for four models with their own templates.
Rates are given by the clock and by processor time, which a busy machine disturbs less.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "oracle"))
from real_conversations import conversations
from tiny_model import make_tiny_model
from tokenizer_oracle import unpack
from work_folder import WorkFolder


def make_model(data, folder):
    """The tiny model with Qwen3's tokenizer and template."""
    source = Path(folder) / "source"
    source.mkdir()
    unpack(data, "qwen3", source)
    parts = source / "qwen3"
    template = json.loads((data / "tokenizers/qwen3/tokenizer_config.json").read_text(encoding="utf-8"))
    (parts / "tokenizer_config.json").write_text(json.dumps(template), encoding="utf-8")
    (parts / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 151936, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": 151645}))
    return make_tiny_model(Path(folder) / "model", parts)


MODELS = {"qwen3": "Qwen-Qwen3-0.6B", "deepseek_v3": "deepseek-ai-DeepSeek-V3.1", "gptoss": "openai-gpt-oss-120b",
          "mistral03": "Mistral-Small-3.2-24B-Instruct-2506"}
ROUNDS = 5
STOPS = {"qwen3": "<|im_end|>", "deepseek_v3": "<｜end▁of▁sentence｜>", "gptoss": "<|return|>", "mistral03": "</s>"}


def stages(program, data, folder):
    """Rendering with mask, tokenizing, and both with one thread and two, by stages/tokenize/tokenize_bench."""
    models = Path(folder) / "models"
    models.mkdir()
    for name, template in MODELS.items():
        unpack(data, name, models)
        (models / name / "chat_template.jinja").write_bytes((data / "chat_templates" / f"{template}.jinja").read_bytes())
        (models / name / "tokenizer_config.json").write_text(json.dumps({"eos_token": STOPS[name]}), encoding="utf-8")
    rows = Path(folder) / "conversations.jsonl"
    rows.write_text("\n".join(json.dumps({"messages": messages}) for messages in conversations()), encoding="utf-8")
    environment = {**os.environ, "DRAFTMILL_BENCH_MODELS": str(models), "DRAFTMILL_BENCH_ROWS": str(rows)}
    rates = {}  # the best of several rounds, since the machine's own speed changes from second to second
    for _ in range(ROUNDS):
        done = subprocess.run([program, "--benchmark_format=json", "--benchmark_filter=/(" + "|".join(MODELS) + ")",
                               "--benchmark_min_time=0.3"], env=environment, capture_output=True, text=True, check=True)
        for result in json.loads(done.stdout)["benchmarks"]:
            rates[result["name"]] = max(rates.get(result["name"], 0), result["bytes_per_second"] / 1e6)
    print("\n| MB of rendered text a second | rendering and mask | tokenizing | both, one thread | both, two threads |\n|---|---|---|---|---|")
    for name in MODELS:
        one, two = (rates[f"stage/{name}/real_time/threads:{threads}"] for threads in (1, 2))
        print(f"| {name} | {rates[f'render_and_mask/{name}']:.0f} | {rates[f'encode/{name}']:.0f} | {one:.1f} | {two:.1f} ({two / one:.2f}x) |")


def make_rows(path, megabytes):
    """Enough rows, no two alike."""
    base = list(conversations())
    size = number = 0
    with open(path, "w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            messages = json.loads(json.dumps(base[number % len(base)]))
            messages[0]["content"] = f"({number}) {messages[0]['content']}"
            number += 1
            size += file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
    return number


def measure(binary, folder, threads):
    """(clock seconds, processor seconds, tokens) of a run into the vocabulary map."""
    pipeline = Path(folder) / f"pipeline-{threads}.yaml"
    pipeline.write_text(
        f"work: work-{threads}\nmodel: {{path: model}}\ningest: {{sources: [{{path: rows.jsonl}}]}}\n"
        f"limits: {{memory: 2GiB, threads: {threads}, min_free_disk: 0}}\n", encoding="utf-8")
    before, start = os.times(), time.monotonic()
    done = subprocess.run([binary, "run", pipeline, "--until", "vocab_map"], capture_output=True, text=True, check=False)
    clock, after = time.monotonic() - start, os.times()
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    processor = after.children_user - before.children_user + after.children_system - before.children_system
    folder = WorkFolder(Path(folder) / f"work-{threads}")
    return clock, processor, folder.value("SELECT sum(tokens) FROM chunks")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default=Path("build/draftmill"))
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DRAFTMILL_TEST_DATA", "../shared/data")))
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--stage-program", type=Path, default=Path("build/stages/tokenize/tokenize_bench"))
    parser.add_argument("--only-stages", action="store_true", help="no runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stages(arguments.stage_program, arguments.data, folder)
        if arguments.only_stages:
            return
        make_model(arguments.data, folder)
        rows = make_rows(Path(folder) / "rows.jsonl", arguments.megabytes)
        size = (Path(folder) / "rows.jsonl").stat().st_size / 1e6
        print(f"{rows} rows, {size:.1f} MB of JSON\n\n| threads | MB/s by the clock | MB/s and core, processor time | tokens/s by the clock |")
        print("|---|---|---|---|")
        for threads in (1, 2):
            clock, processor, tokens = measure(arguments.binary, folder, threads)
            print(f"| {threads} | {size / clock:.1f} | {size / processor:.1f} | {tokens / clock:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
