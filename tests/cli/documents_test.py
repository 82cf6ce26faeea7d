"""The documents that describe the command are what the command says."""

import re
import unittest

from draftmill_command import ROOT, draftmill


class DocumentsTest(unittest.TestCase):
    def test_the_configuration_page_is_current(self):
        page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
        current = draftmill("config", "reference").stdout
        self.assertEqual(page, current, "make it anew: build/draftmill config reference > docs/configuration.md")

    def test_the_commands_page_describes_every_command(self):
        page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
        described = set(re.findall(r"^## `(\w+)`", page, re.MULTILINE))
        listed = draftmill("--help").stdout.split("Subcommands:")[1]
        self.assertEqual(described, set(re.findall(r"^  (\w+) ", listed, re.MULTILINE)))

    def test_the_commands_page_names_every_option(self):
        page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
        for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
            command = re.match(r"`(\w+)`", section)
            if command is None:
                continue
            options = set(re.findall(r"--[a-z-]+", draftmill(command.group(1), "--help").stdout)) - {"--help", "--json", "--work"}
            for option in options:
                self.assertIn(option, section, command.group(1))


if __name__ == "__main__":
    unittest.main()
