#!/usr/bin/env python3
"""Masks of templates with {% generation %} blocks against transformers' own record of what stands in the blocks.

The templates are written here, in the shapes that training templates have: the end token inside the block or behind it, white space
trimmed at its borders, blocks in conditions, loops over tool calls and macros, earlier reasoning left out.

    .venv/bin/python tests/oracle/generation_masks.py --driver build-text/stages/tokenize/tokenize_lines

Exits 0 where all masks are equal, 1 with the first differences, 77 (skipped) where the test data or a package is missing.
"""
import os
import sys
import tempfile

SKIPPED = 77
try:
    from transformers.utils import chat_template_utils

    import template_corpus as corpus
    from mask_oracle import make_tokenizer, show, tokens_of
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

STOPS = ["<|im_end|>", "</s>"]
HEAD = "{% for m in messages %}{% if m.role != 'assistant' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% else %}"
TAIL = "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TEMPLATES = {
    "end token inside": HEAD + "{{ '<|im_start|>assistant\\n' }}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n" + TAIL,
    "end token behind": HEAD + "<|im_start|>assistant\n{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>\n" + TAIL,
    "trimmed borders": HEAD + "<|im_start|>assistant\n  {%- generation -%}  {{ m.content | string | trim }} <|im_end|> {%- endgeneration -%}\n"
                       + TAIL,
    "header inside": HEAD + "{% generation %}<|im_start|>assistant\n{{ m.content }}<|im_end|>\n{% endgeneration %}" + TAIL,
    "two blocks": HEAD + "{% generation %}{{ m.content }}{% endgeneration %}|{% if m.tool_calls %}{% for c in m.tool_calls %}"
                  "{% generation %}<call>{{ c.function | tojson }}</call>{% endgeneration %}\n{% endfor %}{% endif %}</s>" + TAIL,
    "calls in one block": HEAD + "{% generation %}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}({{ c.function.arguments | "
                          "tojson(indent=1) }})</call>{% endfor %}{{ m.content }}</s>{% endgeneration %}" + TAIL,
    "macro": "{% macro turn(m) %}{% generation %}{{ m.content }}</s>{% endgeneration %}{% endmacro %}" + HEAD + "A: {{ turn(m) }}" + TAIL,
    "set before": HEAD + "{% set text = '<think>' ~ (m.reasoning_content or '') ~ '</think>' ~ m.content %}{% if loop.last %}{% generation %}"
                  "{{ text }}</s>{% endgeneration %}{% else %}{% generation %}{{ m.content | string | upper }}</s>{% endgeneration %}{% endif %}" + TAIL,
    "by index": "{% for i in range(messages | length) %}{% set m = messages[i] %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
                "{% if not loop.last %}<|im_end|>{% endif %}{% endgeneration %}{% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}",
}


def expected(source, row, tokens_of_text):
    """The rendered text and its mask by transformers; an Exception where the template refuses the row."""
    try:
        text, blocks = chat_template_utils._render_with_assistant_indices(
            compiled_template=corpus.compile_template(source), messages=row["messages"], tools=row.get("tools"),
            documents=row.get("documents"), add_generation_prompt=False, **corpus.BASE_VARIABLES)
    except Exception as error:  # every refusal counts, whatever its class
        return error, None
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    spans = [(starts[begin], starts[end]) for begin, end in blocks]
    return text, [int(any(b <= token[0] and token[1] <= e for b, e in spans)) for token in tokens_of_text(text, STOPS)]


def main():
    run = corpus.Run()
    equal = refused = differ = 0
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "tokenizer.json")
        make_tokenizer(STOPS, path)
        for name, source in TEMPLATES.items():
            answer = run.driver.ask({"config": {
                "tokenizer": path, "template": source, "variables": corpus.BASE_VARIABLES, "now": corpus.NOW, "expand": "none",
                "stop_tokens": STOPS, "min_supervised_tokens": 0}})
            if "error" in answer:
                print(f"{name}: {answer['error']}")
                differ += 1
                continue
            for index, row in enumerate(corpus.conversations()):
                (ours,) = run.driver.ask({"row": row})
                text, mask = expected(source, row, tokens_of)
                if isinstance(text, Exception) or "error" in ours:
                    refused += 1
                    excused = ours.get("reason") == "no_supervised_token"
                    differ += isinstance(text, Exception) != ("error" in ours) and not excused
                    continue
                equal += ours["text"] == text and ours["loss_mask"] == mask
                if ours["text"] == text and ours["loss_mask"] == mask:
                    continue
                differ += 1
                if differ <= run.arguments.reports:
                    tokens = tokens_of(text, STOPS)
                    print(f"{name}, row {index}: ours {show(text, tokens, ours['loss_mask'])}, right {show(text, tokens, mask)}")
    return run.finish(f"{equal} masks equal, {differ} differ, {refused} refused", differ == 0 and equal > 0)


if __name__ == "__main__":
    sys.exit(main())
