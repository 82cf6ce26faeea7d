"""draftmill tokenize, from outside."""

import json
import tempfile
import unittest
from pathlib import Path

from draftmill_command import ROOT, draftmill

TOKENIZER = {
    "added_tokens": [
        {"id": 5, "content": "<end>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    ],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, ":": 4}, "merges": ["a b"]},
}
TEMPLATE = "{% for m in messages %}{{ m.role[0] | replace('u', 'b') }}:{{ m.content }}{{ end }}{% endfor %}"


class TokenizeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.tokenizer = self.write("tokenizer.json", json.dumps(TOKENIZER))
        self.template = self.write("template.jinja", TEMPLATE)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def test_one_line_for_each_row(self):
        chat = {"messages": [{"role": "user", "content": "c"}, {"role": "assistant", "content": "ab"}]}
        rows = self.write("rows.jsonl", json.dumps({"text": "abc"}) + "\nno row\n" + json.dumps(chat) + "\n")
        result = draftmill(
            "tokenize", "--tokenizer", self.tokenizer, "--template", self.template, "--set", 'end="<end>"',
            "--param", 'stop_tokens=["<end>"]', "--param", "min_supervised_tokens=1", rows,
        )  # fmt: skip
        self.assertEqual((result.returncode, result.stderr), (3, ""))
        text, refused, sample = map(json.loads, result.stdout.splitlines())
        self.assertEqual((text["text"], text["input_ids"]), ("abc", [3, 2]))
        self.assertEqual((text["loss_mask"], text["offsets"]), ([0, 0], [[0, 2], [2, 3]]))
        self.assertEqual((refused["line"], refused["byte_offset"], refused["reason"]), (2, 16, "broken_json"))
        self.assertNotIn("input_ids", refused)
        self.assertEqual((sample["text"], sample["input_ids"]), ("b:c<end>a:ab<end>", [1, 4, 2, 5, 0, 4, 3, 5]))
        self.assertEqual(sample["line"], 3)

    def test_all_good_rows_end_with_0(self):
        rows = self.write("rows.json", '[{"text": "a"}, {"text": ""}]')
        result = draftmill("tokenize", "--tokenizer", self.tokenizer, rows)
        self.assertEqual((result.returncode, len(result.stdout.splitlines())), (0, 2))

    def test_what_is_wrong_is_refused_before_anything_is_printed(self):
        rows = self.write("rows.jsonl", '{"text": "a"}\n')
        chat = self.write("chat.jsonl", '{"messages": [{"role": "assistant", "content": "a"}]}\n')
        tokenizer = ("--tokenizer", self.tokenizer)
        for arguments, message in (
            ((rows,), "--model"),
            ((*tokenizer, "--model", self.folder, rows), "--tokenizer"),
            (tokenizer, "FILE"),
            ((*tokenizer, self.folder / "absent.jsonl"), "absent.jsonl"),
            (("--tokenizer", self.folder / "absent.json", rows), "absent.json"),
            (("--model", self.folder / "absent", rows), "absent"),
            ((*tokenizer, "--template", self.folder / "absent.jinja", rows), "absent.jinja"),
            ((*tokenizer, "--template", self.write("empty.jinja", ""), rows), "empty.jinja: the chat template is empty"),
            ((*tokenizer, chat), "--template"),
            ((*tokenizer, "--param", "max_length=many", rows), "`tokenize.max_length` must be an integer"),
            ((*tokenizer, "--param", "max_lenght=3", rows), "did you mean `max_length`?"),
            ((*tokenizer, "--set", "x=y", rows), "--set x"),
            ((*tokenizer, self.write("x.parquet", "PAR1")), "tools/parquet_to_jsonl.py"),
        ):
            result = draftmill("tokenize", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
            self.assertIn(message, result.stderr, arguments)
        self.assertTrue((ROOT / "tools" / "parquet_to_jsonl.py").is_file())


if __name__ == "__main__":
    unittest.main()
