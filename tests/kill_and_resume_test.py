"""tests/kill_and_resume.py can fail: an imitation of draftmill that resumes well passes, one that does not is caught."""

import sys
from pathlib import Path

import pytest

import kill_and_resume
from kill_and_resume import CrashTestFailed, Workplace, run_all

IMITATION = """#!{python}
import pathlib, re, sys, time
pipeline = pathlib.Path(sys.argv[2])
work = pipeline.parent / re.search("^work: (.*)$", pipeline.read_text(), re.M).group(1)
work.mkdir(exist_ok=True)
(work / "state.db").touch()
resumed = (work / "ingested").exists()
for folder in ("ingested", "corpus", "vocab", "shards"):
    (work / folder).mkdir(exist_ok=True)
    for number in range(3):
        path = work / folder / str(number)
        if path.exists():
            continue
        time.sleep(0.01)
        partial = path.with_suffix(".partial")
        partial.write_text(folder + str(number){fault})
        partial.rename(path)
        time.sleep(0.01)
(work / "manifest.json").write_text("all")
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(kill_and_resume, "MODEL", tmp_path)

    def make(fault):
        program = tmp_path / "imitation"
        program.write_text(IMITATION.format(python=sys.executable, fault=fault), encoding="utf-8")
        program.chmod(0o755)
        return Workplace(tmp_path, program)

    return make


def test_a_good_resume_passes(place, capsys):
    run_all(place(""), kills=5, seed=7)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("undisturbed:")
    assert [line.split(":")[0] for line in printed[1:]] == [*(f"killed-{n}" for n in range(5)), *(f"threads-{n}" for n in (1, 2, 4))]
    assert {line.split(" in ")[1].split(" ")[0] for line in printed[1:6]} == {"start", "ingested", "corpus", "vocab", "shards"}


def test_a_resume_that_changes_a_byte_is_caught(place):
    with pytest.raises(CrashTestFailed, match="differ from the undisturbed run"):
        run_all(place(' + "!" * resumed'), kills=5, seed=7)


def test_threads_that_change_a_byte_are_caught(place):
    with pytest.raises(CrashTestFailed, match="threads-4: "):
        run_all(place(' + "!" * ("threads: 4" in pipeline.read_text())'), kills=1, seed=7)


def test_the_conversations_are_spread_over_both_files():
    chosen = kill_and_resume.chosen_conversations()
    assert len(chosen) == 24
    assert any("Ж" <= letter <= "я" for messages in chosen for message in messages for letter in message["content"])


def test_an_absent_program_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["kill_and_resume.py", "--binary", str(Path(tmp_path) / "absent")])
    assert kill_and_resume.main() == kill_and_resume.SKIPPED
