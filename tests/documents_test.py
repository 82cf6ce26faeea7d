"""What the documents name exists: files, commands of draftmill, and a pipeline file that is accepted."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PAGES_OF_FOLDERS = sorted([*ROOT.glob("stages/*/README.md"), ROOT / "configs" / "demo" / "README.md", ROOT / "python" / "README.md"])
BINARY = Path(os.environ.get("DRAFTMILL_BINARY", ROOT / "build" / "draftmill"))
# Made by the set-up, a build or a run.
MADE = ("build/", "work/", "models/", ".venv/", "data/")


@pytest.mark.parametrize("document", [*DOCUMENTS, *PAGES_OF_FOLDERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_named_files_exist(document):
    text = document.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (document.parent / link).exists(), f"{document.name} links to {link}"
    folders = "base|state|formats|kernels|stages|pipeline|exports|python|configs|tools|tests|docs|cmake"
    for name in re.findall(rf"(?<![\w/.])((?:{folders})/[\w./-]*\w\.(?:h|cc|py|sh|yaml|md|cmake|txt|sql))\b", text):
        assert name.startswith(MADE) or "NAME" in name or (ROOT / name).exists(), f"{document.name} names {name}"


@pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_commands_exist(document):
    help_text = subprocess.run([BINARY, "--help"], check=True, capture_output=True, text=True).stdout
    known = set(re.findall(r"^  ([a-z]+)\b", help_text, flags=re.MULTILINE))
    text = document.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:sh|bash|text)?\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    code = "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", text)])
    for name in re.findall(r"^(?:build/)?draftmill ([a-z]+)\b", code, flags=re.MULTILINE):
        assert name in known, f"{document.name} names the command {name}"


@pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")
def test_the_least_pipeline_file_is_accepted(tmp_path):
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "pipeline.yaml").write_text(block, encoding="utf-8")
    command = [BINARY, "config", "check", tmp_path / "pipeline.yaml"]
    checked = subprocess.run(command, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")
def test_the_demo_names_every_parameter():
    command = [BINARY, "config", "show", "--json", ROOT / "configs" / "demo.yaml"]
    sections = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    unnamed = [
        f"{section}.{name}"
        for section, values in sections.items()
        for name, entry in ({"": values} if "origin" in values else values).items()
        if entry["origin"] == "default"
    ]
    assert unnamed == []


def test_the_page_on_templates_lists_all_that_the_engine_has():
    source = (ROOT / "stages" / "template" / "builtins.cc").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "templates.md").read_text(encoding="utf-8")
    for kind, heading in (("Filter", "Filters"), ("Test", "Tests")):
        known = set(re.findall(rf'\{{"([a-z]+)", {kind}Id::', source))
        (listed,) = re.findall(rf"^\* \*\*{heading}\*\*: (.*?)(?=^\* |\Z)", page, flags=re.DOTALL | re.MULTILINE)
        names = set(re.findall(r"[a-z]+", re.sub(r"\(.*?\)|,? and the\s+signs.*|`[^`]*`", "", listed, flags=re.DOTALL)))
        assert names == known, f"{heading}: {names ^ known}"
