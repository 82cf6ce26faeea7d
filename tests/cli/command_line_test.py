"""Arguments, exit statuses, and which stream says what."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from draftmill_command import BINARY, draftmill


class CommandLineTest(unittest.TestCase):
    def test_version_goes_to_standard_output(self):
        result = draftmill("version")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^draftmill \d+\.\d+\.\d+, engine: ")
        facts = json.loads(draftmill("version", "--json").stdout)
        self.assertIn(facts["version"], result.stdout)
        self.assertIn(facts["version"], draftmill("--version").stdout)

    def test_help_lists_the_commands(self):
        result = draftmill("--help")
        self.assertEqual(result.returncode, 0)
        for command in ("config", "status", "quarantine", "stop", "version"):
            self.assertIn(command, result.stdout)

    def test_a_wrong_command_line_starts_nothing(self):
        for arguments in ([], ["stop"], ["config"], ["status", "a", "b"], ["quarantine", "x", "delete"], ["config", "show", "x", "--jsn"]):
            result = draftmill(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stdout, "", arguments)
            self.assertNotEqual(result.stderr, "", arguments)

    def test_an_unknown_command_names_the_nearest(self):
        self.assertIn("did you mean `status`?", draftmill("staus", "x").stderr)
        self.assertIn("there is no command `frobnicate`", draftmill("frobnicate").stderr)

    def test_a_missing_target_is_named(self):
        for command in (["status"], ["config", "check"], ["stop"]):
            result = draftmill(*command, "absent/pipeline.yaml")
            self.assertEqual((result.returncode, result.stdout), (2, ""), command)
            self.assertIn("absent/pipeline.yaml", result.stderr)

    def test_a_folder_without_a_run_is_no_fault_of_the_user(self):
        with tempfile.TemporaryDirectory() as folder:
            result = draftmill("status", folder)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("no run was started in " + folder, result.stderr)
            self.assertEqual(list(Path(folder).iterdir()), [])

    def test_a_database_that_is_none_is_refused_and_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder) / "state.db"
            database.write_bytes(b"this is not SQLite\n" * 300)
            before = database.read_bytes()
            result = draftmill("status", folder)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("state.db", result.stderr)
            self.assertEqual(database.read_bytes(), before)

    def test_words_that_get_lost_are_a_failure(self):
        for arguments in (["version"], ["--help"], ["config", "reference"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([str(BINARY), *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(result.returncode, 75, arguments)
            self.assertIn("writing to standard output", result.stderr)

    def test_what_a_run_would_refuse_a_plan_refuses_with_the_same_status(self):
        with tempfile.TemporaryDirectory() as folder:
            pipeline = Path(folder, "pipeline.yaml")
            pipeline.write_text("work: w\nmodel: {path: nowhere}\ningest: {sources: [{path: 'no*.jsonl'}]}\n", encoding="utf-8")
            for command in ("plan", "run"):
                self.assertEqual(draftmill(command, pipeline).returncode, 2, command)

    def test_states_are_not_written_over_their_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder, "rows.jsonl")
            rows.write_text('{"input_ids": [1, 2]}\n', encoding="utf-8")
            for output in (rows, folder):
                result = draftmill("states", "--model", folder, "--input", rows, "--output", output)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn("name", result.stderr)
            self.assertEqual(rows.read_text(encoding="utf-8"), '{"input_ids": [1, 2]}\n')

    def test_stopping_what_does_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(draftmill("stop", folder).returncode, 0)


if __name__ == "__main__":
    unittest.main()
