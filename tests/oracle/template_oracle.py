#!/usr/bin/env python3
"""Compares our rendering of chat templates with jinja2 as transformers sets it up, live.

    .venv/bin/python tests/oracle/template_oracle.py --driver build-text/stages/tokenize/tokenize_lines

Exits 0 where every text is identical or refused by both, 1 with the first differences, 77 (skipped) where the test data or
a package is missing.
"""
import sys

SKIPPED = 77
try:
    import template_corpus as corpus
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)


def show(text):
    return repr(text) if len(repr(text)) < 600 else repr(text)[:300] + " ... " + repr(text)[-300:]


def first_difference(ours, theirs):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return f"at {at}: ours {ours[max(0, at - 40):at + 60]!r}, jinja2 {theirs[max(0, at - 40):at + 60]!r}"


def same_refusal(error, message):
    """A template's own words must agree; of other errors it counts that both refuse."""
    if type(error).__name__ == "TemplateError":
        return message == f"the template refuses the row: {error}"
    return True


def main():
    run = corpus.Run(reports=12)
    driver = run.driver
    rows = corpus.conversations()
    texts = refusals = differences = 0
    for name, source in run.templates:
        for variables in corpus.variable_sets(source):
            answer = driver.ask({"config": {"template": source, "variables": variables, "now": corpus.NOW}})
            if "error" in answer:
                print(f"{name}: refused at load: {answer['error']}")
                differences += 1
                break
            for index, row in enumerate(rows):
                for prompt in (False, True):
                    theirs = corpus.render(source, row, variables, prompt)
                    ours = driver.ask({"render": row, "prompt": prompt})
                    if isinstance(theirs, Exception):
                        agree = "error" in ours and same_refusal(theirs, ours["error"])
                        refusals += 1
                    else:
                        agree = ours.get("text") == theirs
                        texts += 1
                    if agree:
                        continue
                    differences += 1
                    if differences <= run.arguments.reports:
                        print(f"{name}, row {index}, prompt {prompt}, {variables}:")
                        if isinstance(theirs, Exception) or "error" in ours:
                            print(f"  ours {show(ours)}\n  jinja2 {show(theirs)}")
                        else:
                            print(f"  {first_difference(ours['text'], theirs)}")
    return run.finish(f"{texts} texts and {refusals} refusals compared, {differences} differ", differences == 0 and texts > 0)


if __name__ == "__main__":
    sys.exit(main())
