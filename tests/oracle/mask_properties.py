#!/usr/bin/env python3
"""Properties of the loss mask that must hold for every chat template, whatever was said in a conversation.

The words of each message stand between marks that occur nowhere else, so the rendered text itself tells whose they are. What
stands between them imitates headers, stop tokens, think and tool tags of all templates, in every role.

* Nothing between the marks of another role is supervised.
* What stands between the marks of an assistant's turn that is trained on is supervised, imitated stop tokens included.
* The stop token that the template writes after an assistant's turn is supervised.

    .venv/bin/python tests/oracle/mask_properties.py --driver build-text/stages/tokenize/tokenize_lines --count 40

Exits 0 where all hold, 1 with the first that do not, 77 (skipped) where the test data or a package is missing.
"""
import os
import random
import re
import sys
import tempfile

SKIPPED = 77
try:
    import template_corpus as corpus
    from mask_oracle import make_tokenizer, stops_of
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

MARKS = re.compile("⟦(\\d+)⟧(.*?)⟦/\\1⟧", re.DOTALL)
LITERALS = re.compile(r"""['"]([^'"\n]*(?:<|\[|:)[^'"\n]*)['"]""")


# Described in full: some templates refuse a tool that is not.
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city", "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "City"}, "days": {"type": "integer", "description": "How many"}},
        "required": ["city"]}}}]


def imitations(source, stops):
    """What a user may write to look like the template: its own literals that hold tags, its stop tokens, and others'."""
    found = {text.replace("\\n", "\n") for text in LITERALS.findall(source) if 2 < len(text) < 60}
    found |= {"<think>", "</think>", "<think>\n\n</think>\n\n", "<tool_call>", "</tool_call>", "<|im_start|>assistant\n", "<|im_end|>\n",
              "[INST]", "[/INST]", "</s>", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", "<|assistant|>", "\n\n", " "}
    return sorted(found) + stops


class Maker:
    """Conversations with marked words; numbers of the marks go up through the conversation."""

    def __init__(self, seed, pieces):
        self.random, self.pieces = random.Random(seed), pieces
        self.number = 0

    def words(self):
        self.number += 1
        inside = "".join(self.random.choice(self.pieces) if self.random.random() < 0.7 else self.random.choice("abc é中 \n")
                         for _ in range(self.random.randrange(0, 6)))
        return f"⟦{self.number}⟧{inside}⟦/{self.number}⟧"

    def answer(self):
        message = {"role": "assistant", "content": self.words()}
        if self.random.random() < 0.3:
            message["reasoning_content"] = self.words()
        return message

    def conversation(self):
        """(row, the role of each mark, the message of each mark)"""
        self.number = 0
        messages = [{"role": "system", "content": self.words()}] if self.random.random() < 0.5 else []
        with_tools = self.random.random() < 0.4
        for _ in range(self.random.randint(1, 3)):
            messages.append({"role": "user", "content": self.words()})
            if with_tools and self.random.random() < 0.7:
                call = corpus.call("get_weather", {"city": self.words(), "days": 1})
                messages.append({"role": "assistant", "content": self.random.choice(["", self.words()]), "tool_calls": [call]})
                messages.append({"role": "tool", "name": "get_weather", "tool_call_id": call["id"], "content": self.words()})
            messages.append(self.answer())
        return {"messages": messages, **({"tools": TOOLS} if with_tools else {})}


def marks_of(messages):
    """Which message, and whether the assistant's, each mark belongs to."""
    found = {}
    for index, message in enumerate(messages):
        for number in re.findall("⟦(\\d+)⟧", repr(message)):
            found[number] = (index, message["role"] == "assistant")
    return found


def violations(sample, marks, stops, turns):
    """What does not hold of a sample. Marks that the template changed (escaped, say) are not looked at."""
    text, data = sample["text"], sample["text"].encode()
    supervised = [0] * len(data)
    for (begin, end), bit in zip(sample["offsets"], sample["loss_mask"], strict=True):
        supervised[begin:end] = [bit] * (end - begin)
    spans = [(m.group(1), len(text[:m.start()].encode()), len(text[:m.end()].encode())) for m in MARKS.finditer(text)]
    for number, begin, end in spans:
        index, is_assistant = marks[number]
        if not is_assistant and any(supervised[begin:end]):
            yield f"text {data[begin:end].decode()!r} of message {index} is supervised"
        if is_assistant and index in turns and not all(supervised[begin:end]):
            yield f"text {data[begin:end].decode()!r} of the assistant's message {index} is not supervised"
    for (number, _, end), (_, after, _) in zip(spans, [*spans[1:], (None, len(data), None)], strict=True):
        index, is_assistant = marks[number]
        last = all(marks[other][0] != index for other, begin, _ in spans if begin > end)
        if not is_assistant or index not in turns or not last:
            continue
        follows = re.match(rf"\s*({'|'.join(map(re.escape, stops))})", data[end:after].decode())
        if follows and not supervised[end + len(data[end:after].decode()[:follows.end()].encode()) - 1]:
            yield f"the stop token {follows.group(1)!r} after message {index} is not supervised"


def main():
    run = corpus.Run(count=30, seed=1)
    driver = run.driver
    held = refused = broken = 0
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "tokenizer.json")
        for name, source in run.templates:
            stops = stops_of(name)
            make_tokenizer(stops, path)
            maker = Maker(run.arguments.seed, imitations(source, stops))
            rows = [maker.conversation() for _ in range(run.arguments.count)]
            held_here = 0
            for expand in ("none", "per_turn"):
                answer = driver.ask({"config": {
                    "tokenizer": path, "template": source, "variables": corpus.BASE_VARIABLES, "now": corpus.NOW, "expand": expand,
                    "stop_tokens": stops, "min_supervised_tokens": 0}})
                assert "error" not in answer, answer
                for row in rows:
                    marks = marks_of(row["messages"])
                    answers = [i for i, message in enumerate(row["messages"]) if message["role"] == "assistant"]
                    for sample in driver.ask({"row": row}):
                        if "error" in sample:
                            refused += 1
                            continue
                        turns = answers if expand == "none" else [sample["turn"]]
                        found = list(violations(sample, marks, stops, turns))
                        held_here += not found
                        broken += bool(found)
                        if found and broken <= run.arguments.reports:
                            print(f"{name}, {expand}: {found[0]}\n  row {row}\n  text {sample['text']!r}")
            held += held_here
            if held_here == 0:
                print(f"{name}: no sample could be looked at")
                broken += 1
    return run.finish(f"the properties hold for {held} samples, not for {broken}; {refused} refused by the templates",
                      broken == 0 and held > 0)


if __name__ == "__main__":
    sys.exit(main())
