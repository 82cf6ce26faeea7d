"""Runs the built draftmill binary, for the tests of this folder."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("DRAFTMILL_BINARY", ROOT / "build" / "draftmill"))


def draftmill(*arguments, **options):
    """The finished process, with its output as text."""
    command = [str(BINARY), *map(str, arguments)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False, **options)
