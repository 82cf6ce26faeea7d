"""The set-up and counting scripts: what they print and how they end where something is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="s" tests="4" failures="1" skipped="1">
  <testcase name="good" status="run"/>
  <testcase name="also good" status="run"/>
  <testcase name="bad" status="fail"><failure message=""/><system-out>one
two</system-out></testcase>
  <testcase name="left out" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
</testsuite>
"""


def count(path):
    command = [sys.executable, ROOT / "tools" / "count_tests.py", "--names", path]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_counting_tells_skipped_from_passed(tmp_path):
    (tmp_path / "tests.xml").write_text(REPORT, encoding="utf-8")
    counted = count(tmp_path / "tests.xml")
    assert counted.returncode == 1
    assert counted.stdout.splitlines() == [
        "skipped: left out",
        "failed: bad; the end of what it printed:",
        "  one",
        "  two",
        "2 passed, 1 failed, 1 skipped",
    ]


def test_no_test_at_all_is_no_success(tmp_path):
    (tmp_path / "tests.xml").write_text('<testsuite name="s" tests="0"></testsuite>', encoding="utf-8")
    counted = count(tmp_path / "tests.xml")
    assert (counted.returncode, counted.stdout) == (1, "0 passed, 0 failed\n")


@pytest.fixture
def machine_without_rights(tmp_path):
    """An environment in which one package is missing and the user is nobody in particular."""
    programs = {
        "dpkg-query": "for name in \"$@\"; do [ \"$name\" = cmake ] || echo \"$name installed\"; done",
        "id": "echo 1000",
        "sudo": "exit 1",
        "apt-get": "echo apt-get must not be called >&2; exit 9",
    }
    for name, text in programs.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_setup_prints_the_command_where_it_may_not_install(machine_without_rights):
    setup = subprocess.run(
        [ROOT / "tools" / "setup.sh", "text"], check=False, capture_output=True, text=True, env=machine_without_rights
    )
    assert setup.returncode == 2
    assert "sudo apt-get update && sudo apt-get install --no-install-recommends -y cmake" in setup.stderr
    assert "must not be called" not in setup.stderr


@pytest.mark.parametrize("arguments", [["everything"], ["cpu", "gpu"]])
def test_setup_refuses_what_it_does_not_know(arguments):
    setup = subprocess.run([ROOT / "tools" / "setup.sh", *arguments], check=False, capture_output=True, text=True)
    assert setup.returncode == 2
    assert "tools/setup.sh [text|cpu|test|gpu]" in setup.stderr
