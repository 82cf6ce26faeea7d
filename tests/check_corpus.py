#!/usr/bin/env python3
"""Holds the ids and loss masks of a work folder's corpus against the Python originals.

    tests/check_corpus.py WORK [--model FOLDER] [--least N]

Token ids: jinja2, with the environment that transformers uses, renders the model's own chat template, and the
tokenizers library encodes the text. Loss mask: the rule of docs/formats.md by rendering prefixes alone. For the answer
at index i, P is the text of the messages before it, G what add_generation_prompt appends to P, and T what the answer
appends to P: supervised is T after the longest common prefix of T and G, through the last stop token in T. A token that
is only partly inside is not supervised. Rendering prefixes needs a template for which the text of fewer messages is a
prefix of the text of more; conversations for which it is not are counted and reported as not judged.

Exit: 0 all judged samples agree and there are at least N of them, 1 otherwise.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from work_folder import WorkFolder, samples_of, tensors_of


class Renderer:
    """The chat template of a model folder, as transformers renders it."""

    def __init__(self, model):
        config = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
        template_file = model / "chat_template.jinja"
        source = template_file.read_text(encoding="utf-8") if template_file.is_file() else config["chat_template"]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = self._to_json
        environment.globals["raise_exception"] = self._raise
        self._template = environment.from_string(source)
        self._tokens = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in config.items()
            if name.endswith("_token") and value
        }

    @staticmethod
    def _to_json(value, indent=None):
        return json.dumps(value, ensure_ascii=False, indent=indent)

    @staticmethod
    def _raise(message):
        raise ValueError(message)

    def __call__(self, messages, tools, add_generation_prompt=False):
        return self._template.render(
            messages=messages, tools=tools, documents=None, add_generation_prompt=add_generation_prompt, **self._tokens
        )


def stop_texts(model, tokenizer):
    """The texts of the stop tokens: eos of config.json, generation_config.json and the tokenizer."""
    numbers = set()
    for name in ("config.json", "generation_config.json"):
        path = model / name
        eos = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.is_file() else None
        numbers.update(eos if isinstance(eos, list) else [] if eos is None else [eos])
    texts = {tokenizer.id_to_token(number) for number in numbers}
    eos = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8")).get("eos_token")
    texts.add(eos["content"] if isinstance(eos, dict) else eos)
    return sorted(text for text in texts if text)


def common_prefix_length(first, second):
    length = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        length += 1
    return length


def supervised_ranges(render, messages, tools, stops):
    """Character ranges of the full text that are supervised, or None where prefixes do not tell."""
    full = render(messages, tools)
    ranges = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        if index == 0:
            return None  # the text before the first message cannot be told from the message itself
        before = render(messages[:index], tools)
        prompted = render(messages[:index], tools, add_generation_prompt=True)
        after = render(messages[: index + 1], tools)
        if not (full.startswith(after) and after.startswith(before) and prompted.startswith(before)):
            return None
        turn = after[len(before) :]
        start = common_prefix_length(turn, prompted[len(before) :])
        ends = [place + len(stop) for stop in stops if (place := turn.rfind(stop, start)) >= 0]
        if not ends:
            return None
        ranges.append((len(before) + start, len(before) + max(ends)))
    return ranges


def expected_sample(render, tokenizer, stops, conversation):
    """(ids, mask or None) of a whole conversation."""
    messages, tools = conversation["messages"], conversation.get("tools")
    encoding = tokenizer.encode(render(messages, tools), add_special_tokens=False)
    ids = np.array(encoding.ids, dtype=np.int32)
    ranges = supervised_ranges(render, messages, tools, stops)
    if ranges is None:
        return ids, None
    mask = np.zeros(len(ids), dtype=np.uint8)
    for token, (begin, end) in enumerate(encoding.offsets):
        mask[token] = any(begin >= first and end <= last for first, last in ranges)
    return ids, mask


def first_difference(expected, actual):
    shared = min(len(expected), len(actual))
    different = np.flatnonzero(expected[:shared] != actual[:shared])
    place = int(different[0]) if len(different) else shared
    return f"lengths {len(expected)} and {len(actual)}, first difference at token {place}"


def check(work, model, least):
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    render = Renderer(model)
    stops = stop_texts(model, tokenizer)
    equal_ids = equal_masks = not_judged = 0
    wrong = []
    for chunk in work.chunks():
        rows = {row["sample_id"]: row["conversation"] for row in work.ingested_rows(chunk)}
        tensors = tensors_of(work.corpus_path(chunk))
        for index, begin, end in samples_of(tensors):
            sample_id, variant = int(tensors["sample_id"][index]), int(tensors["variant"][index])
            if variant != 0 or "messages" not in rows[sample_id]:
                not_judged += 1
                continue
            ids, mask = expected_sample(render, tokenizer, stops, rows[sample_id])
            actual_ids, actual_mask = tensors["input_ids"][begin:end], tensors["loss_mask"][begin:end]
            # A sample over the length limit is cut at its end.
            was_cut = 0 < len(actual_ids) < len(ids) and work.value("SELECT max(tokens) FROM samples") == len(actual_ids)
            if was_cut:
                ids, mask = ids[: len(actual_ids)], None if mask is None else mask[: len(actual_ids)]
            if not np.array_equal(ids, actual_ids):
                wrong.append(f"sample {sample_id}: ids: {first_difference(ids, actual_ids)}")
                continue
            equal_ids += 1
            if mask is None:
                not_judged += 1
            elif np.array_equal(mask, actual_mask):
                equal_masks += 1
            else:
                wrong.append(f"sample {sample_id}: mask: {first_difference(mask, actual_mask)}")
    for line in wrong[:20]:
        print(f"check_corpus: {line}", file=sys.stderr)
    print(f"{equal_ids} samples with equal ids, {equal_masks} with equal masks, {not_judged} not judged, {len(wrong)} wrong")
    return not wrong and equal_ids >= least and equal_masks >= least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the work folder")
    parser.add_argument("--model", type=Path, help="the model's folder (default: the demo model)")
    parser.add_argument("--least", type=int, default=1, help="how many samples must have been judged")
    arguments = parser.parse_args()
    model = arguments.model or Path(__file__).resolve().parent.parent / "models" / "smollm2-135m-instruct"
    return 0 if check(WorkFolder(arguments.work), model, arguments.least) else 1


if __name__ == "__main__":
    sys.exit(main())
