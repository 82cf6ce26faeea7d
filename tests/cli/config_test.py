"""draftmill config, from outside."""

import json
import tempfile
import unittest
from pathlib import Path

from draftmill_command import ROOT, draftmill

SMALLEST = "work: work\nmodel: {path: model}\ningest: {sources: [{path: data.jsonl}]}\n"


class ConfigTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def pipeline(self, text):
        path = self.folder / "pipeline.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def test_every_file_in_configs_is_valid(self):
        files = sorted((ROOT / "configs").glob("*.yaml"))
        self.assertGreaterEqual(len(files), 3)
        for file in files:
            result = draftmill("config", "check", file)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_complete_yaml_names_every_parameter(self):
        values = json.loads(draftmill("config", "show", ROOT / "configs" / "complete.yaml", "--json").stdout)
        for section, members in values.items():
            for name, entry in [("", members)] if "origin" in members else members.items():
                self.assertEqual(entry["origin"], "file", f"{section}.{name}")

    def test_errors_have_places_and_come_together(self):
        path = self.pipeline(SMALLEST + "vocab_map:\n  sise: 3\n  size: many\nextrat: {}\n")
        result = draftmill("config", "check", path)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn(f"{path}:5:3: unknown key `sise` in section `vocab_map`; did you mean `size`?", result.stderr)
        self.assertIn(f"{path}:6:9: `vocab_map.size` must be", result.stderr)
        self.assertIn(f"{path}:7:1: unknown key `extrat`; did you mean `extract`?", result.stderr)
        self.assertIn("3 errors", result.stderr)
        facts = json.loads(draftmill("config", "check", path, "--json").stdout)
        self.assertFalse(facts["valid"])

    def test_texts_that_a_stage_could_not_use_have_their_place(self):
        for wrong, message in ((("tokenize", "template_now", "2025-13-45"), "is no moment"),
                               (("extract", "batch_tokens", "99999999999999999999"), "the largest integer is")):
            section, name, value = wrong
            with tempfile.TemporaryDirectory() as folder:
                pipeline = Path(folder, "pipeline.yaml")
                pipeline.write_text(f"work: w\nmodel: {{path: m}}\ningest: {{sources: [{{path: a}}]}}\n{section}:\n  {name}: {value}\n", encoding="utf-8")
                result = draftmill("config", "check", pipeline)
                self.assertEqual(result.returncode, 2)
                self.assertRegex(result.stderr, f"pipeline.yaml:5:.*{section}.{name}.*{message}")

    def test_show_prints_a_configuration_of_the_same_values(self):
        path = self.pipeline(SMALLEST + "limits: {memory: 3GiB}\n")
        shown = draftmill("config", "show", path)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertRegex(shown.stdout, r"memory: 3GiB +# line 4")
        self.assertRegex(shown.stdout, r"threads: auto +# default")
        again = self.folder / "again.yaml"
        again.write_text(shown.stdout, encoding="utf-8")

        def values(file):
            facts = json.loads(draftmill("config", "show", file, "--json").stdout)
            return {
                section: entry["value"] if "value" in entry else {name: inner["value"] for name, inner in entry.items()}
                for section, entry in facts.items()
            }

        self.assertEqual(values(path), values(again))

    def test_paths_are_relative_to_the_file_and_work_to_the_current_folder(self):
        path = self.pipeline(SMALLEST)
        facts = json.loads(draftmill("config", "show", path, "--json").stdout)
        self.assertEqual(facts["work"]["value"], str(self.folder / "work"))
        self.assertEqual(facts["model"]["path"]["value"], str(self.folder / "model"))
        self.assertIs(facts["ingest"]["shuffle"]["value"], False)
        facts = json.loads(draftmill("config", "show", path, "--json", "--work", "elsewhere", cwd=self.folder).stdout)
        self.assertEqual(facts["work"], {"value": "elsewhere", "origin": "command line"})

    def test_hostile_files_are_refused(self):
        for text in ("[" * 100_000, "a: &a [*a]\n", "\x00", "work: !!python/object:os.system x\n", "&a " * 5000, "? [1]\n: 2\n", "%YAML 9.9\n---\n"):
            result = draftmill("config", "check", self.pipeline(text))
            self.assertEqual((result.returncode, result.stdout), (2, ""), text[:20])
        self.folder.joinpath("pipeline.yaml").write_bytes(b"work: \xff\xfe\n")
        self.assertEqual(draftmill("config", "check", self.folder / "pipeline.yaml").returncode, 2)


if __name__ == "__main__":
    unittest.main()
