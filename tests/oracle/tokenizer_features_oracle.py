#!/usr/bin/env python3
"""Every normalizer, pre-tokenizer, flag and model option that we understand, against `tokenizers`, live.

The models of Llama-2 (characters, byte fallback) and GPT-2 (bytes) are given one other part at a time, and small models are
trained with parts drawn at random; ids are compared on random strings. Same command line as tokenizer_oracle.py.

    .venv/bin/python tests/oracle/tokenizer_features_oracle.py --driver build-text/stages/tokenize/tokenizer/encode_lines --random 300
"""
import argparse
import copy
import itertools
import json
import os
import random
import sys
import tempfile
from pathlib import Path

from tokenizer_oracle import SKIPPED, Driver, HuggingFaceOracle, corpus_texts, random_texts, unpack

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
NORMALIZERS = (
    [{"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")]
    + [{"type": "Strip", "strip_left": a, "strip_right": b} for a in (True, False) for b in (True, False)]
    + [{"type": "Prepend", "prepend": "▁"},
       {"type": "Replace", "pattern": {"String": "a"}, "content": "zz"},
       {"type": "Replace", "pattern": {"String": "\n"}, "content": ""},
       {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
       {"type": "Replace", "pattern": {"Regex": r"[^\p{L}\s]{2,}"}, "content": "_"},
       {"type": "Replace", "pattern": {"Regex": r"\d"}, "content": ""},
       {"type": "Replace", "pattern": {"String": "  "}, "content": " y"},
       sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})]
)
PATTERNS = [r"\s+", r"\p{N}{1,3}+", r"\w+|[^\w\s]+", r"[\p{L}&&[^\p{Lu}]]+", r"(?<=\p{L})\p{N}", r"\p{Han}", r"^.", r".$", r"x*",
            r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\b\w", r"(?i:'s|'t|'ll)", r"(?i:[j-s]+)",
            r"'(?i:[sdmt]|ll|ve|re)|(?i:[a-ik-z_])[\r\n]*+", r"[\p{P}$<>|]+(?!\S)", r"\S{2}?", r"[a-f\x{4e00}-\x{9fa5}]{,2}"]
PRE_TOKENIZERS = (
    [split(r"\p{P}+|\s", behavior, invert) for behavior in BEHAVIORS for invert in (False, True)]
    + [split("a", behavior, invert, "String") for behavior in BEHAVIORS for invert in (False, True)]
    + [split(pattern) for pattern in PATTERNS]
    + [{"type": "Digits", "individual_digits": d} for d in (True, False)]
    + [{"type": "Punctuation", "behavior": behavior} for behavior in BEHAVIORS]
    + [{"type": "Whitespace"}, {"type": "WhitespaceSplit"}]
    + [metaspace(scheme, cut) for scheme in ("always", "first", "never") for cut in (True, False)]
    + [sequence("pretokenizers", split(r"\p{N}"), metaspace("first", True)),
       sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always", False), {"type": "Punctuation"})]
)
BYTE_PRE_TOKENIZERS = [
    {**BYTE_LEVEL, "add_prefix_space": prefix, "use_regex": regex} for prefix in (True, False) for regex in (True, False)
] + [sequence("pretokenizers", {"type": "Digits", "individual_digits": d}, {**BYTE_LEVEL, "add_prefix_space": p, "use_regex": True})
     for d in (True, False) for p in (True, False)] + [
    sequence("pretokenizers", split(pattern), BYTE_LEVEL) for pattern in PATTERNS] + [
    # After ByteLevel: Falcon's own, and what can cut inside a character.
    sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, {**BYTE_LEVEL, "use_regex": True},
             {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")),
    sequence("pretokenizers", BYTE_LEVEL, {"type": "Digits", "individual_digits": True}),
    sequence("pretokenizers", BYTE_LEVEL, {"type": "Punctuation", "behavior": "Isolated"}),
    sequence("pretokenizers", BYTE_LEVEL, split("Ġ", "MergedWithNext", False, "String"), split(r"\p{L}+"))]
MODELS = [{"byte_fallback": False}, {"byte_fallback": False, "fuse_unk": False}, {"byte_fallback": False, "unk_token": None},
          {"ignore_merges": True}]
ADDED = ["<|t|>", "tok", "the", "Né", "ﬁ", " x", "<|", "\n", "中文"]


def added_tokens(first_id, vocabulary):
    """All combinations of flags over a few contents."""
    tokens = []
    for i, content in enumerate(ADDED):
        flags = {"lstrip": bool(i & 1), "rstrip": bool(i & 2), "single_word": i in (1, 2), "normalized": i % 3 == 2, "special": i < 4}
        known = vocabulary.get(content)
        tokens.append({"id": first_id if known is None else known, "content": content, **flags})
        first_id += known is None
    return tokens


def variants(llama, gpt2):
    """(name, tokenizer.json) of everything to compare."""
    for normalizer in NORMALIZERS:
        yield f"normalizer {normalizer}", {**llama, "normalizer": normalizer}
    for pre_tokenizer in PRE_TOKENIZERS:
        yield f"pre_tokenizer {pre_tokenizer}", {**llama, "normalizer": None, "pre_tokenizer": pre_tokenizer}
    # What a Replace puts in place of several characters does not begin where a text begins.
    for normalizer in NORMALIZERS:
        yield f"normalizer {normalizer} before Metaspace", {
            **llama, "normalizer": normalizer, "pre_tokenizer": sequence("pretokenizers", split("[xy]"), metaspace("first", True))}
    for pre_tokenizer in BYTE_PRE_TOKENIZERS:
        yield f"pre_tokenizer {pre_tokenizer}", {**gpt2, "pre_tokenizer": pre_tokenizer}
    for options in MODELS:
        yield f"model {options}", {**llama, "model": {**llama["model"], **options}}
    for base, name in ((llama, "llama2"), (gpt2, "gpt2")):
        for normalizer in (base["normalizer"], {"type": "NFKC"}, {"type": "Lowercase"}):
            with_tokens = copy.copy(base)
            with_tokens["normalizer"] = normalizer
            with_tokens["added_tokens"] = base["added_tokens"] + added_tokens(len(base["model"]["vocab"]), base["model"]["vocab"])
            yield f"{name} with added tokens and normalizer {normalizer}", with_tokens


def trained(count, data, seed):
    """Models of a few hundred tokens, as `tokenizers` trains and writes them, with parts that were drawn at random."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    source = random.Random(seed)
    normalizers = [None, None, *NORMALIZERS]
    texts = [text for text in corpus_texts(data) if 20 < len(text) < 4000][:400]
    for number in range(count):
        is_byte_level, byte_fallback = source.random() < 0.6, source.random() < 0.5
        tokenizer = Tokenizer(models.BPE(unk_token=None if is_byte_level else "<unk>", byte_fallback=byte_fallback and not is_byte_level,
                                         fuse_unk=source.random() < 0.5))
        normalizer = source.choice(normalizers)
        parts = [source.choice(PRE_TOKENIZERS) for _ in range(source.randrange(3))]
        parts += [source.choice(BYTE_PRE_TOKENIZERS)] if is_byte_level else [metaspace(source.choice(["first", "always"]), True)]
        settings = json.loads(tokenizer.to_str())
        settings["normalizer"], settings["pre_tokenizer"] = normalizer, sequence("pretokenizers", *parts)
        tokenizer = Tokenizer.from_str(json.dumps(settings))
        fallback = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback and not is_byte_level else []
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
            vocab_size=600 + len(fallback), special_tokens=["<unk>", "<s>", "</s>", *fallback], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if is_byte_level else []))
        if is_byte_level:
            tokenizer.decoder = decoders.ByteLevel()
        made = json.loads(tokenizer.to_str())
        vocabulary = made["model"]["vocab"]
        made["added_tokens"] = [token for token in made["added_tokens"] if token["content"] not in fallback]
        made["added_tokens"] += added_tokens(max(vocabulary.values()) + 1, vocabulary)[:source.randrange(len(ADDED) + 1)]
        yield f"trained {number}: normalizer {normalizer}, pre-tokenizers {parts}", made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver", required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DRAFTMILL_TEST_DATA", "../shared/data")))
    parser.add_argument("--random", type=int, default=300)
    parser.add_argument("--trained", type=int, default=40, help="how many models are trained")
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    if not (arguments.data / "tokenizers").is_dir():
        print(f"skipped: no test data at {arguments.data}; set DRAFTMILL_TEST_DATA")
        return SKIPPED
    texts = [*random_texts(arguments.random, [*ADDED, "<s>", "<|endoftext|>", "token", " the "], arguments.seed), "", " ", "  a",
             "the xtok", "the  x <|t|>the x"]
    failures = count = 0
    with tempfile.TemporaryDirectory() as folder:
        bases = [json.loads(unpack(arguments.data, name, folder).read_text()) for name in ("llama2", "gpt2")]
        made = trained(arguments.trained, arguments.data, arguments.seed)
        for name, tokenizer in itertools.chain(variants(*bases), made):
            count += 1
            path = Path(folder) / "tokenizer.json"
            path.write_text(json.dumps(tokenizer))
            oracle, driver = HuggingFaceOracle(path), Driver(arguments.driver, path)
            answers = zip(texts, oracle.encode(texts), driver.encode(texts), strict=True)
            wrong = [(text, ours, ids) for text, (ids, _), (ours, _) in answers if ours != ids]
            if wrong:
                failures += 1
                print(f"{name}: {len(wrong)} of {len(texts)} differ, first {wrong[0][0]!r}: ours {wrong[0][1]}, right {wrong[0][2]}")
    print(f"{count} variants, {failures} with differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
