#!/usr/bin/env python3
"""Compares our loss masks with an independent reading of the rule in docs/loss_mask.md, which knows nothing of provenance.

For assistant message i it renders the messages before it without and with add_generation_prompt, and the messages up to
and with it. Where these are prefixes of one another, they say where the message's text begins and ends; the rule does the
rest. Where a template writes earlier messages differently once later ones follow, that turn is looked at in the
rendering that ends with it.

What prefixes cannot say is counted by template and reason, not judged: a template that refuses the messages before or up
to this one (roles that must alternate); one that writes earlier messages otherwise once later ones follow (dropped
reasoning), or this one otherwise when it is last (Apriel ends only earlier turns with a token); one that appends a prompt
whatever it is asked (Command R7B), where the same bytes may be the prompt or the end of the message before.

    .venv/bin/python tests/oracle/mask_oracle.py --driver build-text/stages/tokenize/tokenize_lines

Exits 0 where all masks are equal, 1 with the first differences, 77 (skipped) where the test data or a package is missing.
"""
import collections
import os
import sys
import tempfile

SKIPPED = 77
try:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    import template_corpus as corpus
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

# The end-of-turn tokens of each family: those that its generation_config.json names.
STOPS = {
    "GLM": ["<|user|>", "<|observation|>", "<|endoftext|>"], "Apriel": ["<|end|>"], "Bielik": ["<|im_end|>", "</s>"],
    "Cohere": ["<|END_OF_TURN_TOKEN|>"], "Giga": ["<|message_sep|>", "</s>"], "Mistral": ["</s>"], "mistral": ["</s>"],
    "Reka": ["<sep>"], "deepseek": ["</s>", "<｜end▁of▁sentence｜>"], "gemma-2": ["<end_of_turn>"], "gemma-4": ["<turn|>"],
    "granite": ["<|end_of_text|>"], "functionary": ["<|eot_id|>", "<|eom_id|>"], "Llama": ["<|eot_id|>", "<|eom_id|>"],
    "gpt-oss": ["<|return|>", "<|call|>", "<|endoftext|>"], "Seed": ["<seed:eos>"], "rwkv": ["</s>"],
}


def stops_of(name):
    for family, stops in STOPS.items():
        if family in name:
            return stops
    return ["<|im_end|>", "<|endoftext|>", "</s>"]


def make_tokenizer(stops, path):
    """A byte-level tokenizer without merges whose special tokens are the stop tokens: every character's bytes are tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(stop, normalized=False, special=True) for stop in stops])
    tokenizer.save(path)


def tokens_of(text, stops):
    """Byte ranges of that tokenizer's tokens, found without it: (begin, end, is_stop)."""
    data = text.encode()
    encoded = [stop.encode() for stop in stops]
    tokens, at = [], 0
    while at < len(data):
        stop = next((s for s in encoded if data.startswith(s, at)), None)
        size = len(stop) if stop else 1
        tokens.append((at, at + size, stop is not None))
        at += size
    return tokens


def common_prefix(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


STOPS_IN_USE = []


class Unclear(Exception):
    """The prefixes of this rendering do not say where the message stands."""


def span_of_turn(render, full, index, count, roles):
    """Character range of message `index` in `full`, and where its supervision starts."""
    without, with_prompt = render(index, False), render(index, True)
    if isinstance(without, Exception) or isinstance(with_prompt, Exception):
        raise Unclear("the messages before are refused")
    if with_prompt != without and not with_prompt.startswith(without):
        raise Unclear("the prompt is not appended")
    if with_prompt == without:  # the prompt is always there, or never
        if index == 0 or roles[index - 1] == "assistant":
            raise Unclear("no prompt here, after nothing or an assistant")
        shared = common_prefix(full, with_prompt)
        if shared != len(with_prompt):
            raise Unclear("no prompt, and the messages before are written otherwise")
        begin = start = shared
    else:
        if not full.startswith(without):
            raise Unclear("the messages before are written otherwise")
        begin = len(without)
        start = begin + common_prefix(full[begin:], with_prompt[begin:])
    if index + 1 == count:
        if with_prompt == without and not full[start:].rstrip().endswith(tuple(STOPS_IN_USE)):
            raise Unclear("a prompt that is always there may follow the message")
        return start, len(full)
    after, after_prompt = render(index + 1, False), render(index + 1, True)
    if isinstance(after, Exception):
        raise Unclear("the messages with this one are refused")
    end = common_prefix(full, after)
    if after == after_prompt and with_prompt != without:
        raise Unclear("no prompt after an assistant: it may end otherwise when last")
    if end != len(after) and after != after_prompt:
        raise Unclear("this message is written otherwise when it is last")
    return start, end


def supervised_bytes(full, span, stops, is_last, content):
    start, end = (len(full[:position].encode()) for position in span)
    tokens = tokens_of(full, stops)
    inside = [t for t in tokens if t[2] and t[0] >= start and t[1] <= end]
    if inside:
        return start, inside[-1][1]
    following = next((t for t in tokens if t[0] >= end), None)
    if following and following[2] and following[0] == end and not is_last:
        return start, following[1]
    text = full.encode()[start:end].decode()
    if content and isinstance(content, str) and text.endswith(content):
        return start, end  # white space of the message itself is text
    return start, start + len(text.rstrip().encode())


def expected_mask(source, row, variables, stops, count, turns):
    messages = row["messages"]

    def render(size, prompt):
        return corpus.render(source, row, variables, prompt, size)

    full = render(count, False)
    if isinstance(full, Exception):
        return full
    ranges = []
    for index in turns:
        span = span_of_turn(render, full, index, count, [m["role"] for m in messages])
        ranges.append(supervised_bytes(full, span, stops, index + 1 == count, messages[index]["content"]))
    return [int(any(b <= t[0] and t[1] <= e for b, e in ranges)) for t in tokens_of(full, stops)]


def show(text, tokens, mask):
    pieces, out = "", []
    data = text.encode()
    for (begin, end, _), bit in zip(tokens, mask, strict=True):
        if bit:
            pieces = (pieces or b"") + data[begin:end] if pieces else data[begin:end]
        elif pieces:
            out.append(pieces.decode(errors="replace"))
            pieces = ""
    return out + ([pieces.decode(errors="replace")] if pieces else [])


def main():
    run = corpus.Run()
    driver = run.driver
    rows = corpus.conversations()
    equal = refused = differ = 0
    unclear = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "tokenizer.json")
        for name, source in run.templates:
            stops = stops_of(name)
            make_tokenizer(stops, path)
            STOPS_IN_USE[:] = stops
            clear_here, refused_before = 0, refused
            for variables in corpus.variable_sets(source):
                variables = {**corpus.BASE_VARIABLES, **variables}
                for expand in ("none", "per_turn"):
                    answer = driver.ask({"config": {
                        "tokenizer": path, "template": source, "variables": variables, "now": corpus.NOW, "expand": expand,
                        "stop_tokens": stops, "min_supervised_tokens": 0}})
                    if "error" in answer:
                        print(f"{name}: {answer['error']}")
                        differ += 1
                        break
                    for index, row in enumerate(rows):
                        ours = driver.ask({"row": row})
                        for sample in ours:
                            turns = [i for i, m in enumerate(row["messages"]) if m["role"] == "assistant"]
                            count = len(row["messages"])
                            if expand == "per_turn":
                                turns = [sample["turn"]] if sample["turn"] >= 0 else turns
                                count = turns[-1] + 1
                            try:
                                theirs = expected_mask(source, row, variables, stops, count, turns)
                            except Unclear as reason:
                                unclear[name, str(reason)] += 1
                                continue
                            if isinstance(theirs, Exception):
                                refused += 1
                                differ += "error" not in sample
                                continue
                            clear_here += 1
                            if sample.get("loss_mask") == theirs:
                                equal += 1
                                continue
                            differ += 1
                            if differ <= run.arguments.reports:
                                full = corpus.render(source, row, variables, False, count)
                                tokens = tokens_of(full, stops)
                                print(f"{name}, row {index}, {expand}, {variables}:\n  text {full!r}")
                                print(f"  ours   {show(full, tokens, sample.get('loss_mask', []))} {sample.get('error', '')} "
                                      f"{sample.get('message', '')}")
                                print(f"  theirs {show(full, tokens, theirs)}")
            if clear_here == 0 and refused == refused_before:
                print(f"{name}: no mask could be compared")
                differ += 1
    for (name, reason), count in sorted(unclear.items()):
        print(f"{name}: {count} not clear: {reason}")
    return run.finish(f"{equal} masks equal, {differ} differ, {unclear.total()} not clear from prefixes, {refused} refused by the template",
                      differ == 0 and equal > 0)


if __name__ == "__main__":
    sys.exit(main())
