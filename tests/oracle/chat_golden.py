#!/usr/bin/env python3
"""Our ids and masks beside those that SpecForge keeps as references of its own (test data, chat_golden/specforge).

    .venv/bin/python tests/oracle/chat_golden.py --driver build-text/stages/tokenize/tokenize_lines

Ids must be equal. Masks differ in known places, each named below with who is right. Exits 0 where nothing else differs, 1
with what does, 77 (skipped) where the test data is missing. The texts of chat_golden/harmony have no masks and come from
another renderer than gpt-oss's chat template; the one of them that is a list of ids is compared as such.
"""
import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from driver import Driver
from field_cases import data_folder, locate, supervised_pieces, template_text

SKIPPED = 77
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}  # SpecForge puts it before each conversation

# What differs, and who is right:
#
# newline  The reference supervises the newline that ChatML templates write after <|im_end|>. Generation ends at <|im_end|>,
#          so the model never emits it: ours is right.
# unended  gpt-oss's template ends an earlier answer with <|end|>, which is no stop token of the model (those are <|return|>,
#          <|call|>, <|endoftext|>): when the turn was generated, <|return|> stood in its place. The reference supervises
#          <|end|>, which teaches a drafter a token that the target did not emit there: ours is right.


def golden(name, messages, tokenizer, template, stop, newline, variables=None):
    return {"name": name, "messages": messages, "tokenizer": tokenizer, "template": template, "stop": stop,
            "newline": newline, "variables": variables or {}}



CHATML = ["<|im_end|>", "<|endoftext|>"]
GOLDENS = [
    # Equal in every token.
    golden("deepseek-v3_standard", "standard", "deepseek_v3", "tokenizers/deepseek_v3/tokenizer_config.json",
           ["<｜end▁of▁sentence｜>"], False, {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}),
    golden("kimi-k2-instruct_standard", "standard", "kimi_k2", "chat_templates/moonshotai-Kimi-K2.jinja", ["<|im_end|>"], False),
    # The newline, and nothing else: with enable_thinking=false the empty think block is part of the prompt ("instruct"), else
    # the model has to write it ("thinking").
    golden("qwen_standard", "standard", "qwen3", "chat_templates/Qwen-Qwen2.5-7B-Instruct.jinja", CHATML, True),
    golden("qwen3-instruct_standard", "standard", "qwen3", "tokenizers/qwen3/tokenizer_config.json", CHATML, True,
           {"enable_thinking": False}),
    golden("qwen3-thinking_standard", "standard", "qwen3", "tokenizers/qwen3/tokenizer_config.json", CHATML, True),
    golden("qwen3-instruct_tool-use", "tool-use", "qwen3", "tokenizers/qwen3/tokenizer_config.json", CHATML, True,
           {"enable_thinking": False}),
]



def compare(driver, data, scratch, case):
    """The differences that are not known."""
    messages = json.loads((data / "chat_golden/specforge/messages.json").read_text(encoding="utf-8"))[case["messages"]]
    right = json.loads((data / f"chat_golden/specforge/{case['name']}_ref.json").read_text(encoding="utf-8"))
    name = "tiktoken.model" if case["tokenizer"] == "kimi_k2" else "tokenizer.json"
    answer = driver.ask({"config": {
        "tokenizer": str(locate(data, data, f"tokenizers/{case['tokenizer']}/{name}", scratch)),
        "template": template_text(data / case["template"]), "variables": case["variables"], "stop_tokens": case["stop"],
        "expand": "none", "min_supervised_tokens": 0}})
    if "error" in answer:
        return [answer["error"]]
    (sample,) = driver.ask({"row": {"messages": [SYSTEM, *messages]}})
    if "error" in sample:
        return [sample["error"]]
    if sample["input_ids"] != right["input_ids"]:
        return [f"ids {sample['input_ids']} are not {right['input_ids']}"]
    ours = supervised_pieces(sample)
    theirs = supervised_pieces({**sample, "loss_mask": right["loss_mask"]})
    if case["newline"]:
        if not all(piece.endswith("<|im_end|>\n") for piece in theirs):
            return [f"the reference no longer supervises the newline: {theirs}"]
        theirs = [piece.removesuffix("\n") for piece in theirs]
    return [] if ours == theirs else [f"supervised {ours} is not {theirs}"]


def compare_gpt_oss(driver, data, scratch):
    """SpecForge writes gpt-oss's channels itself, from roles of its own. As a conversation of ours the answer with its analysis
    is one message; the template shows the analysis only while that answer is the last one, so `expand: auto` makes two samples.
    What the reference supervises of a turn is what ours does, but for `unended`."""
    right = json.loads((data / "chat_golden/specforge/gpt-oss_gpt-oss_ref.json").read_text(encoding="utf-8"))
    ask, analysis, final, ask_again, final_again = (
        message["content"]
        for message in json.loads((data / "chat_golden/specforge/messages.json").read_text(encoding="utf-8"))["gpt-oss"])
    driver.ask({"config": {
        "tokenizer": str(locate(data, data, "tokenizers/gptoss/tokenizer.json", scratch)),
        "template": template_text(data / "chat_templates/openai-gpt-oss-120b.jinja"), "now": "2025-06-28T00:00:00",
        "variables": {"reasoning_effort": "low"}, "stop_tokens": ["<|return|>", "<|call|>", "<|endoftext|>"]}})
    samples = driver.ask({"row": {"messages": [
        {"role": "user", "content": ask}, {"role": "assistant", "content": final, "thinking": analysis},
        {"role": "user", "content": ask_again}, {"role": "assistant", "content": final_again}]}})
    if any("error" in sample for sample in samples):
        return [sample["error"] for sample in samples if "error" in sample]
    found, theirs, end, last = [], [], 200007, 200002
    for token, bit, before in zip(right["input_ids"], right["loss_mask"], [0, *right["loss_mask"][:-1]], strict=True):
        if bit:
            theirs += [] if before else [[]]
            theirs[-1].append(token)
    if len(samples) != len(theirs):
        return [f"{len(samples)} samples, right are {len(theirs)}"]
    for turn, sample in zip(theirs, samples, strict=True):
        ours = [token for token, bit in zip(sample["input_ids"], sample["loss_mask"], strict=True) if bit]
        if turn[-1] != end or ours != [*turn[:-1], last]:
            found.append(f"supervised {ours} is not {turn} with <|return|> for the last <|end|>")
    if len(theirs) != len(samples):
        found.append(f"{len(samples)} samples for {len(theirs)} turns")
    first = samples[0]["input_ids"]
    if first[:-1] != right["input_ids"][:len(first) - 1]:
        found.append(f"ids {first} are not those that the reference begins with")
    return found


def compare_harmony(driver, data, scratch):
    """The ids of a text with tool calls, as openai/harmony encodes it: ours of the same text."""
    import tokenizers  # the text is not in the test data, only its ids

    path = locate(data, data, "tokenizers/gptoss/tokenizer.json", scratch)
    right = [int(token) for token in (data / "chat_golden/harmony/test_simple_tool_call.txt").read_text().split()]
    text = tokenizers.Tokenizer.from_file(str(path)).decode(right, skip_special_tokens=False)
    driver.ask({"config": {"tokenizer": str(path)}})
    (sample,) = driver.ask({"row": {"text": text}})
    return [] if sample.get("input_ids") == right else [f"{sample} is not {right}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", type=Path, required=True)
    arguments = parser.parse_args()
    data = data_folder()
    if data is None or shutil.which("zstd") is None:
        print("skipped: no test data, or no zstd")
        return SKIPPED
    driver = Driver(arguments.driver)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        results = [(case["name"], compare(driver, data, scratch, case)) for case in GOLDENS]
        results.append(("gpt-oss_gpt-oss", compare_gpt_oss(driver, data, scratch)))
        results.append(("harmony/test_simple_tool_call", compare_harmony(driver, data, scratch)))
        for name, found in results:
            failed += bool(found)
            print(f"{name}: {found if found else 'as it must be'}")
    status = driver.close()
    return 0 if failed == 0 and status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
