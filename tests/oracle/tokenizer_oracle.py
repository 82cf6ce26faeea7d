#!/usr/bin/env python3
"""Compares the ids and byte ranges of our tokenizer with those of `tokenizers` and `tiktoken`, live.

    .venv/bin/python tests/oracle/tokenizer_oracle.py --driver build-text/stages/tokenize/tokenizer/encode_lines \
        --data ../shared/data --random 20000 --corpora --code-points

Exits 0 where all agree, 1 with the first differences, 77 (skipped) where the test data or a package is missing.
"""
import argparse
import base64
import csv
import gzip
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
NAMES = ["gpt2", "qwen3", "deepseek_v3", "gptoss", "llama2", "mistral03", "kimi_k2"]
NORMALIZING = {"qwen3", "llama2", "mistral03"}  # here ranges of changed text may differ from the oracle's
MAX_REPORTS = 10
BATCH = 50_000

try:
    import tiktoken
    from tokenizers import Tokenizer
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

KIMI_PATTERN = "|".join([
    r"""[\p{Han}]+""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""",
    r""" ?[^\s\p{L}\p{N}]+[\r\n]*""",
    r"""\s*[\r\n]+""",
    r"""\s+(?!\S)""",
    r"""\s+""",
])
# Names that moonshotai/Kimi-K2-Instruct's tokenizer_config.json gives to reserved ids; for a rank file alone the bracketed
# ones ([PAD] ...) are text, as in the published reference ids.
KIMI_NAMED = {
    163586: "<|im_end|>", 163587: "<|im_user|>", 163588: "<|im_assistant|>",
    163590: "<|start_header_id|>", 163591: "<|end_header_id|>", 163594: "<|im_system|>",
    163595: "<|tool_calls_section_begin|>", 163596: "<|tool_calls_section_end|>", 163597: "<|tool_call_begin|>",
    163598: "<|tool_call_argument_begin|>", 163599: "<|tool_call_end|>", 163601: "<|im_middle|>",
}


class HuggingFaceOracle:
    """tokenizer.json through `tokenizers`, without added tokens."""

    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(str(path))
        self.added = [t.content for t in self.tokenizer.get_added_tokens_decoder().values()]

    def encode(self, texts):
        for text, encoding in zip(texts, self.tokenizer.encode_batch(texts, add_special_tokens=False), strict=True):
            yield encoding.ids, byte_offsets(text, encoding.offsets)


class KimiOracle:
    """tiktoken.model as tokenization_kimi.py reads it."""

    def __init__(self, path):
        ranks = {}
        for line in Path(path).read_bytes().splitlines():
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
        base = len(ranks)
        specials = {KIMI_NAMED.get(i, f"<|reserved_token_{i}|>"): i for i in range(base, base + 256)}
        self.encoding = tiktoken.Encoding("kimi", pat_str=KIMI_PATTERN, mergeable_ranks=ranks, special_tokens=specials)
        self.added = list(specials)

    @staticmethod
    def runs(text, most=25_000):
        """_split_whitespaces_or_nonwhitespaces of tokenization_kimi.py."""
        length, is_space, start = 0, text[0].isspace() if text else False, 0
        for i, character in enumerate(text):
            now = character.isspace()
            if is_space ^ now:
                length, is_space = 1, now
            else:
                length += 1
                if length > most:
                    yield text[start:i]
                    start, length = i, 1
        yield text[start:]

    def encode(self, texts):
        for text in texts:
            ids = []
            for i in range(0, len(text), 400_000):
                for part in self.runs(text[i:i + 400_000]):
                    ids.extend(self.encoding.encode(part, allowed_special="all"))
            yield ids, None


def byte_offsets(text, offsets):
    """Character offsets as byte offsets."""
    if text.isascii():
        return offsets
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    return [(starts[b], starts[e]) for b, e in offsets]


class Driver:
    """Our encode_lines."""

    def __init__(self, program, tokenizer):
        self.program, self.tokenizer = program, tokenizer

    def encode(self, texts):
        """(ids, byte ranges) of each text, or (None, message)."""
        with tempfile.TemporaryFile() as requests, tempfile.TemporaryFile() as answers:
            for text in texts:
                raw = text.encode()
                requests.write(struct.pack("<I", len(raw)) + raw)
            requests.seek(0)
            subprocess.run([self.program, str(self.tokenizer)], stdin=requests, stdout=answers, check=True)
            answers.seek(0)
            data = answers.read()
        at = 0
        for _ in texts:
            (count,) = struct.unpack_from("<I", data, at)
            at += 4
            if count == 0xFFFFFFFF:
                (length,) = struct.unpack_from("<I", data, at)
                yield None, data[at + 4:at + 4 + length].decode()
                at += 4 + length
                continue
            values = struct.unpack_from(f"<{3 * count}i", data, at)
            at += 12 * count
            yield list(values[0::3]), list(zip(values[1::3], values[2::3], strict=True))


def widened(text, offsets):
    """Byte ranges widened to whole characters."""
    raw = text.encode()
    result = []
    for begin, end in offsets:
        while 0 < begin < len(raw) and raw[begin] & 0xC0 == 0x80:
            begin -= 1
        while end < len(raw) and raw[end] & 0xC0 == 0x80:
            end += 1
        result.append((begin, end))
    return result


def tiles(text, offsets):
    """True where the ranges follow one another from the first byte to the last."""
    at = 0
    for begin, end in offsets:
        if begin != at or end < begin:
            return False
        at = end
    return at == len(text.encode())


class Comparison:
    """Counts texts and differences of one tokenizer."""

    def __init__(self, name, oracle, driver):
        self.name, self.oracle, self.driver = name, oracle, driver
        self.texts = self.wrong_ids = self.wrong_ranges = 0

    def check(self, texts, what):
        for text, (ids, offsets), (ours, ranges) in zip(texts, self.oracle.encode(texts), self.driver.encode(texts), strict=True):
            self.texts += 1
            if ours != ids:
                self.wrong_ids += 1
                if self.wrong_ids <= MAX_REPORTS:
                    first = next((i for i, (a, b) in enumerate(zip(ours or [], ids, strict=False)) if a != b), -1)
                    print(f"{self.name}: {what}: other ids for {text[:200]!r} from token {first}: "
                          f"ours {(ours or [])[max(first, 0):][:8]} (of {len(ours or [])}), "
                          f"right {ids[max(first, 0):][:8]} (of {len(ids)}) {ranges if ours is None else ''}")
                continue
            self.check_ranges(text, ranges, offsets, what)

    def check_ranges(self, text, ranges, offsets, what):
        good = True
        if self.name not in NORMALIZING:
            good = tiles(text, ranges) and (offsets is None or widened(text, ranges) == offsets)
        elif offsets is not None and self.name != "qwen3":
            good = widened(text, ranges) == offsets
        if not good:
            self.wrong_ranges += 1
            if self.wrong_ranges <= MAX_REPORTS:
                print(f"{self.name}: {what}: other ranges for {text[:80]!r}: ours {widened(text, ranges)[:12]}, "
                      f"right {offsets[:12] if offsets else 'tiles'}")


ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCXYZ", "0123456789", " ", " \t\n\r", ".,;:!?'\"()[]{}<>/\\|@#$%^&*-_=+~`", "\n", "\r\n",
    "éèüñçßøåÅÉſK", "абвгдеЖЗИ", "αβγΔΩ", "中文字符测试汉语", "ひらがなカタカナー・", "한국어각", "ไทยภาษาุู้", "हिन्दीभाषा", "العربيةًٌ", "עבריתָ",
    "\u0301\u0300\u0323\u0307\u030a", "👍🏽👨‍👩‍👧😀🇩🇪", "\u00a0\u2003\u3000\u2028\u0085\u200b\u180e\ufeff", "\u0000\u0001\u007f\u0090", "½²Ⅷ①٣", "〇〡⺀々",
    "ǅᾈ",
    "'s't're've'm'll'd", "'S'T'RE'ſ", "\u1100\u1161\u11a8", "\ue000\U000f0000\U000e0001\u0378", "<|", "|>", "▁", "<0x0A>",
]


def random_texts(count, added, seed):
    """Mixed scripts, white space runs, added tokens inside text, lone marks, CRLF."""
    source = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(source.randint(1, 8)):
            kind = source.random()
            if kind < 0.12 and added:
                parts.append(source.choice(added))
            elif kind < 0.17:
                code_point = source.randrange(0x110000)
                parts.append(chr(code_point) if not 0xD800 <= code_point < 0xE000 else "x")
            elif kind < 0.25:
                parts.append(source.choice(["  ", "\r\n", "\n\n", " \n ", "\t\t", "   ", "'ll", "'S", " the", "ing", "://"]))
            else:
                alphabet = source.choice(ALPHABETS)
                length = source.randint(1, 9) if source.random() < 0.998 else source.randint(100, 1000)
                parts.append("".join(source.choice(alphabet) for _ in range(length)))
        yield "".join(parts)


def strings_of(value):
    """All strings inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_of(item)


def json_values(text):
    """The values of a JSON or JSON Lines text; a line that is neither stands for itself."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    values = []
    for line in text.splitlines():
        try:
            values.append(json.loads(line))
        except ValueError:
            values.append(line)
    return values


def corpus_texts(data):
    """Every string of the conversations, and every naughty string."""
    seen = set()
    for path in sorted((data / "conversations").rglob("*")):
        if not path.is_file():
            continue
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode()
        if path.suffix == ".tsv":
            found = [field for row in csv.reader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE) for field in row]
        else:
            found = list(strings_of(json_values(text)))
        for string in found:
            if string not in seen:
                seen.add(string)
                yield string
    for path in sorted((data / "malformed").glob("blns*")):
        text = path.read_text()
        yield from (strings_of(json.loads(text)) if path.suffix == ".json" else text.splitlines())


def code_point_texts():
    """Each code point alone and between letters."""
    for code_point in range(0x110000):
        if not 0xD800 <= code_point < 0xE000:
            yield chr(code_point)
            yield "a" + chr(code_point) + "b"


def batches(texts, size):
    batch = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def unpack(data, name, folder):
    """The tokenizer file, unpacked into `folder`."""
    file = "tiktoken.model" if name == "kimi_k2" else "tokenizer.json"
    target = Path(folder) / name
    target.mkdir()
    subprocess.run(["zstd", "-dqf", str(data / "tokenizers" / name / (file + ".zst")), "-o", str(target / file)], check=True)
    return target / file


def compare(name, arguments, folder):
    path = unpack(arguments.data, name, folder)
    oracle = KimiOracle(path) if name == "kimi_k2" else HuggingFaceOracle(path)
    driver = Driver(arguments.driver, path)
    comparison = Comparison(name, oracle, driver)
    if arguments.corpora:
        for batch in batches(corpus_texts(arguments.data), BATCH):
            comparison.check(batch, "corpus")
    if arguments.code_points:
        for batch in batches(code_point_texts(), BATCH):
            comparison.check(batch, "code points")
    for batch in batches(random_texts(arguments.random, oracle.added, arguments.seed), BATCH):
        comparison.check(batch, "random")
    print(f"{name}: {comparison.texts} texts, {comparison.wrong_ids} with other ids, "
          f"{comparison.wrong_ranges} with other byte ranges", flush=True)
    return comparison.wrong_ids + comparison.wrong_ranges


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver", required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DRAFTMILL_TEST_DATA", "../shared/data")))
    parser.add_argument("--random", type=int, default=0, help="how many random strings for each tokenizer")
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--corpora", action="store_true", help="conversations and naughty strings")
    parser.add_argument("--code-points", action="store_true", help="all code points, alone and between letters")
    parser.add_argument("--only", nargs="*", default=NAMES)
    arguments = parser.parse_args()
    if not (arguments.data / "tokenizers").is_dir():
        print(f"skipped: no test data at {arguments.data}; set DRAFTMILL_TEST_DATA")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        return 1 if sum(compare(name, arguments, folder) for name in arguments.only) else 0


if __name__ == "__main__":
    sys.exit(main())
