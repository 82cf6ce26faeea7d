"""Real conversations of the test data as token rows of a model folder, by transformers' tokenizer and chat template."""

import json
import os
from pathlib import Path

TEST_DATA = Path(os.environ.get("DRAFTMILL_TEST_DATA", "../shared/data"))


def _lines(path):
    with path.open(encoding="utf-8") as file:
        yield from file


def _texts(content):
    return content if isinstance(content, str) else "".join(part["value"] for part in content)


def conversations():
    """MT-bench with GPT-4's reference answers, then LLaMA-Factory's SFT demo."""
    folder = TEST_DATA / "conversations"
    questions = {}
    for line in _lines(folder / "eagle_bench" / "mt_bench.jsonl"):
        row = json.loads(line)
        questions[row["question_id"]] = row
    for line in _lines(folder / "eagle_bench" / "mt_bench_gpt4_reference.jsonl"):
        answer = json.loads(line)
        turns = questions[answer["question_id"]].get("turns") or questions[answer["question_id"]]["prompt"]
        messages = []
        for question, reply in zip(turns, answer["choices"][0]["turns"], strict=False):
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]
        yield messages
    for line in _lines(folder / "llamafactory" / "v1_sft_demo.jsonl"):
        messages = [{"role": message["role"], "content": _texts(message["content"])} for message in json.loads(line)["messages"]]
        if any(message["role"] == "assistant" for message in messages):
            yield messages


def token_rows(model_folder, count, max_length=2048, min_length=16):
    """`count` rows spread evenly over the conversations, cut at max_length."""
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    rows = [tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"][:max_length]
            for messages in conversations()]
    rows = [row for row in rows if len(row) >= min_length]
    step = max(1, len(rows) // count)
    return rows[::step][:count]
