#!/usr/bin/env python3
"""Adds up test results (JUnit XML as ctest writes it) and prints 'N passed, N failed[, N skipped]' on one line.

    tools/count_tests.py [--names] FILE...

--names lists the skipped and the failed tests first, these with the end of what they printed. Exit: 0 when at least one test passed and none failed, else 1.
"""

import argparse
import sys
from xml.etree import ElementTree

SHOWN_LINES = 40


def outcome_of(case):
    """'passed' | 'failed' | 'skipped'."""
    status = case.get("status")
    if case.find("skipped") is not None or status in ("notrun", "disabled"):
        return "skipped"
    if case.find("failure") is not None or case.find("error") is not None or status == "fail":
        return "failed"
    return "passed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="list the skipped and failed tests")
    parser.add_argument("files", nargs="+", help="JUnit XML files")
    arguments = parser.parse_args()
    found = {"passed": [], "failed": [], "skipped": []}
    for path in arguments.files:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            found[outcome_of(case)].append(case)
    if arguments.names:
        for case in found["skipped"]:
            print(f"skipped: {case.get('name')}")
        for case in found["failed"]:
            print(f"failed: {case.get('name')}; the end of what it printed:")
            for line in (case.findtext("system-out") or "").splitlines()[-SHOWN_LINES:]:
                print(f"  {line}")
    skipped = f", {len(found['skipped'])} skipped" if found["skipped"] else ""
    print(f"{len(found['passed'])} passed, {len(found['failed'])} failed{skipped}")
    return 0 if found["passed"] and not found["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
