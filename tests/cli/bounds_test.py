"""draftmill tokenize on templates and patterns made to hurt: a clear refusal within a second and 256 MiB."""

import json
import os
import tempfile
import unittest
from pathlib import Path

from draftmill_command import BINARY

SECONDS, MEBIBYTES = 1.0, 256
DEEP = 100_000
TEMPLATES = {
    "loops for ever": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "doubles a text": "{% set n = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
    "builds 10 GB": "{{ 'a' * 10000000000 }}",
    "writes 10 GB": "{% for i in range(10000) %}{{ 'a' * 1000000 }}{% endfor %}",
    "nests statements": "{% if x %}" * DEEP,
    "nests brackets": "{{ " + "(" * DEEP + "1",
    "nests lists": "{% set n = namespace(l=[]) %}{% for i in range(99999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
    "calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "is too long": "x" * 1_100_000,
    "has too many numbers": "{{ [" + "1," * 500_000 + "] }}",
    "has too many statements": "{{1}}a" * 170_000,
    "has too many brackets": "{{ " + "[" * 1_000_000,
    "writes 40 MB of a row of nothing": "{% for i in range(99999) %}{{ 'a' * 400 }}{% endfor %}",
    "writes 40 MB into a variable": "{% set x %}{% for i in range(99999) %}{{ 'a' * 400 }}{% endfor %}{% endset %}{{ x }}",
    "writes a list as JSON": "{{ (['aaaa'] * 2000000) | tojson }}",
    "writes a list as text": "{{ ['aaaa'] * 2000000 }}",
    "joins a list": "{{ (['aaaaaaaaaa'] * 2000000) | join('b') }}",
    "writes a long text": "{% set x = 'a' * 30000000 %}{{ x | upper }}",
    "takes a text apart": "{{ ('a,' * 15000000).split(',') | list | tojson }}",
}
PATTERNS = ["(a+)+$|(a|aa)+b|(a|a)*d", "(?:a|aa)+(?:b|d)|x", "(" * DEEP]
CHAT = {"messages": [{"role": "user", "content": "a" * 5000}, {"role": "assistant", "content": "b"}]}


def tokenizer(pattern="b"):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"added_tokens": [], "pre_tokenizer": split, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}}


class BoundsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.tokenizer = self.write("tokenizer.json", json.dumps(tokenizer()))

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def refusal(self, *arguments):
        """What `tokenize` says where it refuses: on the row's line or, before it begins, on standard error."""
        out, err = self.folder / "out", self.folder / "err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            pid = os.posix_spawn(BINARY, [str(BINARY), "tokenize", *map(str, arguments)], os.environ,
                                 file_actions=[(os.POSIX_SPAWN_DUP2, stdout.fileno(), 1), (os.POSIX_SPAWN_DUP2, stderr.fileno(), 2)])
            _, status, usage = os.wait4(pid, 0)
        self.assertIn(os.waitstatus_to_exitcode(status), (2, 3), err.read_text())
        self.assertLess(usage.ru_utime + usage.ru_stime, SECONDS)
        self.assertLess(usage.ru_maxrss / 1024, MEBIBYTES)
        lines = out.read_text().splitlines()
        return json.loads(lines[0])["error"] if lines else err.read_text()

    def test_templates(self):
        rows = self.write("rows.jsonl", json.dumps(CHAT))
        for what, source in TEMPLATES.items():
            with self.subTest(what):
                message = self.refusal("--tokenizer", self.tokenizer, "--template", self.write("t.jinja", source), rows)
                self.assertIn("template", message)

    def test_patterns(self):
        rows = self.write("rows.jsonl", json.dumps({"text": "a" * 5000 + "c"}))
        for pattern in PATTERNS:
            with self.subTest(pattern[:20]):
                path = self.write("pattern.json", json.dumps(tokenizer(pattern)))
                self.assertRegex(self.refusal("--tokenizer", path, rows), "pattern|Regex|regular expression")

    def test_deep_rows(self):
        for row in ("[" * DEEP, '{"messages":' * DEEP):
            self.assertIn("deep", self.refusal("--tokenizer", self.tokenizer, self.write("rows.jsonl", row)))


if __name__ == "__main__":
    unittest.main()
