#!/usr/bin/env python3
"""Adds up test results (JUnit XML as ctest writes it) and prints 'N passed, N failed[, N skipped]' on one line.

    tools/count_tests.py [--names] FILE...

--names lists the failed and the skipped tests first. Exit: 0 when at least one test passed and none failed, else 1.
"""

import argparse
import sys
import xml.etree.ElementTree as ElementTree


def outcomes(path):
    """Yields (test name, 'passed' | 'failed' | 'skipped')."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        if case.find("skipped") is not None or status in ("notrun", "disabled"):
            yield case.get("name"), "skipped"
        elif case.find("failure") is not None or case.find("error") is not None or status == "fail":
            yield case.get("name"), "failed"
        else:
            yield case.get("name"), "passed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="list the failed and skipped tests")
    parser.add_argument("files", nargs="+", help="JUnit XML files")
    arguments = parser.parse_args()
    found = {"passed": [], "failed": [], "skipped": []}
    for path in arguments.files:
        for name, outcome in outcomes(path):
            found[outcome].append(name)
    if arguments.names:
        for outcome in ("skipped", "failed"):
            for name in found[outcome]:
                print(f"{outcome}: {name}")
    skipped = f", {len(found['skipped'])} skipped" if found["skipped"] else ""
    print(f"{len(found['passed'])} passed, {len(found['failed'])} failed{skipped}")
    return 0 if found["passed"] and not found["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
