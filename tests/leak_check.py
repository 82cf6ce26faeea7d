#!/usr/bin/env python3
"""A whole small run under Valgrind: whether it ends as it should, and whether memory is lost or used wrongly.

    tests/leak_check.py [--binary build/draftmill] [--rows 12]

The model is a tiny one whose tokens are bytes. With build/draftmill the states come from the real engine and torch's
products. Prints the run's own exit status and Valgrind's summary. Exit: 0 the run is complete and Valgrind found nothing, 1 not,
77 where there is no Valgrind.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from small_run import COMPLETE, ROOT, SmallRun, conversation

KINDS = "definite,indirect"
OPTIONS = ["--leak-check=full", f"--errors-for-leak-kinds={KINDS}", f"--show-leak-kinds={KINDS}"]
OPTIONS.append(f"--suppressions={Path(__file__).with_suffix('.supp')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "draftmill")
    parser.add_argument("--rows", type=int, default=12)
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("skipped: there is no valgrind", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory(prefix="draftmill-leaks-") as folder:
        rows = [conversation(number) for number in range(arguments.rows)]
        # With the last layer, so that its states are read through the head as well.
        run = SmallRun(folder, arguments.binary, rows, layers="eagle3")
        report = Path(folder) / "valgrind.log"
        command = ["valgrind", *OPTIONS, f"--log-file={report}", arguments.binary, "run", run.pipeline]
        with open(run.log, "wb") as log:
            status = subprocess.run(command, check=False, stdout=log, stderr=subprocess.STDOUT).returncode
        text = report.read_text(encoding="utf-8", errors="replace")
        summary = re.findall(r"== +((?:definitely|indirectly|possibly) lost: .*|ERROR SUMMARY: .*|All heap blocks were freed.*)", text)
        verified = status in COMPLETE and run.run("--deep", command="verify") == 0
        words = run.last_words()
    print(f"exit status {status}, {'' if verified else 'not '}whole under verify --deep")
    print("\n".join(f"  {line}" for line in summary))
    if not verified:
        print(words, file=sys.stderr)
    found = "ERROR SUMMARY: 0 errors" not in text
    if found:
        # Calls of the system that Valgrind does not know are told of line by line, in another form.
        print("\n".join(line for line in text.splitlines() if line.startswith("==")), file=sys.stderr)
    return 0 if verified and not found else 1


if __name__ == "__main__":
    sys.exit(main())
