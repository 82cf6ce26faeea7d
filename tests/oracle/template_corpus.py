"""Templates, conversations and variables that the template and mask oracles share, and jinja2 as transformers sets it up.

Everything is made here or read from the test data; nothing depends on the time or on chance.
"""
import argparse
import datetime
import json
import os
import sys
from pathlib import Path

from transformers.utils import chat_template_utils

from driver import Driver

NOW = "2025-03-09T07:05:03"
ROOT = Path(__file__).resolve().parents[2]


def data_folder():
    folder = Path(os.environ.get("DRAFTMILL_TEST_DATA") or ROOT / "../shared/data")
    return folder if (folder / "chat_templates").is_dir() else None


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(NOW)


chat_template_utils.datetime = FixedClock
compile_template = chat_template_utils._compile_jinja_template


def render(source, conversation, variables, add_generation_prompt=False, messages=None):
    """The text, or an Exception where jinja2 refuses."""
    chosen = conversation["messages"] if messages is None else conversation["messages"][:messages]
    try:
        return compile_template(source).render(
            messages=chosen, tools=conversation.get("tools"), documents=conversation.get("documents"),
            add_generation_prompt=add_generation_prompt, **variables)
    except Exception as error:  # every refusal counts, whatever its class
        return error


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city, with \"quotes\" & <tags>",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "City name"},
            "days": {"type": "integer", "description": "How many days", "default": 1},
            "units": {"type": "string", "enum": ["metric", "imperial"]}}, "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "查询", "description": "搜索 l'été", "parameters": {"type": "object", "properties": {
            "q": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
            "nested": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}}}},
            "required": ["q"]},
        "return": {"type": "object", "description": "hits"}}},
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(text, name="get_weather", id="call00001"):
    return {"role": "tool", "name": name, "tool_call_id": id, "content": text}


def conversations():
    """At least 40 conversations, as ingest leaves them."""
    weather = call("get_weather", {"city": "Oslo", "days": 2})
    hits = call("查询", {"q": "été", "tags": ["a", "b"], "nested": {"a": 1.5, "b": True}}, "call00002")
    rows = [
        [user("Hi"), assistant("Hello there.")],
        [system("Be brief."), user("Hi"), assistant("Hello.")],
        [user("One"), assistant("1"), user("Two"), assistant("2"), user("Three"), assistant("3")],
        [system("S"), user("a"), assistant("b"), user("c"), assistant("d")],
        [user(""), assistant("")],
        [user("  spaces  "), assistant("  around \n")],
        [user("\n\nlines\n"), assistant("a\n\n\nb\n")],
        [user("Ünïcödé 你好 🚀 \u0301"), assistant("こんにちは — “quoted” \u200b end")],
        [user("tabs\tand\r\nCRLF"), assistant("x\r\ny")],
        [user("<b>html</b> & 'quotes' \"double\""), assistant("{{ not a template }} {% if %} {# #}")],
        [user("long " * 500), assistant("answer " * 300)],
        [user("2+2?"), assistant("<think>\nTwo and two.\n</think>\n\n4")],
        [user("2+2?"), assistant("<think>first</think>4"), user("3+3?"), assistant("<think>\nsecond\n</think>\n\n6")],
        [user("2+2?"), assistant("4", reasoning_content="Two and two.")],
        [user("2+2?"), assistant("4", reasoning_content="one"), user("3+3?"), assistant("6", reasoning_content="two")],
        [user("2+2?"), assistant("4", thinking="Adding.")],
        [user("2+2?"), assistant("4", reasoning="Adding.", reasoning_content="Adding.")],
        [user("think?"), assistant("no closing <think> tag")],
        [user("think?"), assistant("only closing </think> tag")],
        [user("a"), assistant("b"), user("c")],
        [assistant("I begin."), user("ok"), assistant("fine")],
        [user("a"), user("b"), assistant("c")],
        [user("a"), assistant("b"), assistant("c")],
        [system("one"), system("two"), user("a"), assistant("b")],
        [{"role": "developer", "content": "Rules."}, user("a"), assistant("b")],
        [user("a"), system("late"), assistant("b")],
        [system("only system"), assistant("b")],
        [user("x" * 3), assistant("y" * 3), user("z"), assistant("w"), user("end?"), assistant("yes")],
        [user([{"type": "text", "text": "part one "}, {"type": "text", "text": "part two"}]), assistant("ok")],
        [user("a"), assistant([{"type": "text", "text": "typed answer"}])],
        [system([{"type": "text", "text": "typed system"}]), user([{"type": "text", "text": "q"}]), assistant("ok")],
        [user("a"), assistant("b", name="bob"), {"role": "user", "content": "c", "name": "ann"}, assistant("d")],
        [user("repeat repeat"), assistant("repeat"), user("repeat"), assistant("repeat repeat")],
        [user("number 1.0 and 1e5"), assistant("None True False null")],
        [user("assistant\n"), assistant("user\n")],
        [user("[INST] x [/INST]"), assistant("</b> <s>")],
    ]
    plain = [{"messages": row} for row in rows]
    with_tools = [
        [user("Weather?"), assistant("", tool_calls=[weather]), tool('{"t": 4}'), assistant("4 degrees.")],
        [system("Use tools."), user("Weather?"), assistant("", tool_calls=[weather]), tool("cold"), assistant("Cold.")],
        [user("Both?"), assistant("", tool_calls=[weather, hits]), tool("4"), tool('["x"]', "查询", "call00002"),
         assistant("Done.")],
        [user("Weather?"), assistant("Let me look.", tool_calls=[weather]), tool("4"), assistant("4.")],
        [user("Weather?"), assistant("", tool_calls=[weather])],
        [user("Weather?"), assistant("", reasoning_content="I should look.", tool_calls=[weather]), tool("4"),
         assistant("4.", reasoning_content="Now I know.")],
        [user("a"), assistant("b"), user("Weather?"), assistant("", tool_calls=[weather]), tool("4"), assistant("4."),
         user("Thanks"), assistant("Welcome.")],
        [user("Weather?"), assistant("", tool_calls=[weather]), tool("4"), assistant("", tool_calls=[hits]),
         tool("none", "查询", "call00002"), assistant("Nothing.")],
        [user("No tool needed"), assistant("Right.")],
        [user("String arguments"), assistant("", tool_calls=[call("get_weather", '{"city": "Oslo"')]), tool("?"),
         assistant("Broken.")],
        [user("Empty arguments"), assistant("", tool_calls=[call("get_weather", {})]), tool(""), assistant("ok")],
        [user("Numbers"), assistant("", tool_calls=[call("get_weather", {
            "big": 123456789012345678901234567890, "f": 1.0, "e": 1e-07, "n": None, "list": [1, [2, {"k": "v"}]]})]),
         tool("ok"), assistant("ok")],
    ]
    plain += [{"messages": row, "tools": TOOLS} for row in with_tools]
    plain += [{"messages": row} for row in with_tools[:4]]
    plain.append({"messages": rows[0], "documents": [{"title": "T", "text": "Body"}]})
    return plain


BASE_VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}


def variable_sets(source):
    """The base variables, and those that the template itself asks about."""
    sets = [dict(BASE_VARIABLES), {}]
    choices = {
        "enable_thinking": [True, False], "thinking": [True, False], "reasoning_effort": ["high"], "builtin_tools": [["python"]],
        "xml_tools": [[{"name": "f"}]], "custom_instructions": ["Be kind."], "date_string": ["26 Jul 2024"],
        "tools_in_user_message": [False], "model_identity": ["You are X."], "thinking_budget": [0, 512], "controls": [{"length": "long"}],
        "available_tools": [[{"name": "t", "parameters": {}}]], "preserve_thinking": [True], "clear_thinking": [False],
        "citations": ["on"], "safety_mode": ["strict"], "keep_past_thinking": [True], "reasoning": [True],
        "add_thoughts": [False], "system_message": ["Sys."], "developer_instructions": ["Dev."],
    }
    for name, values in choices.items():
        if name in source:
            sets += [{**BASE_VARIABLES, name: value} for value in values]
    return sets


def templates(folder):
    for path in sorted((folder / "chat_templates").glob("*.jinja")):
        yield path.stem, path.read_text(encoding="utf-8")
    for path in sorted((folder / "tokenizers").glob("*/tokenizer_config.json")):
        source = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
        if isinstance(source, str):
            yield f"tokenizers/{path.parent.name}", source


class Run:
    """The command line of a test over the templates, the driver, and the templates that it asks for. `options` are further
    ones of the command line with their defaults."""

    def __init__(self, reports=10, **options):
        parser = argparse.ArgumentParser()
        parser.add_argument("--driver", required=True, help="our tokenize_lines")
        parser.add_argument("--only", default="", help="templates whose name contains this")
        parser.add_argument("--reports", type=int, default=reports, help="how many differences are shown")
        for name, default in options.items():
            parser.add_argument(f"--{name}", type=type(default), default=default)
        self.arguments = parser.parse_args()
        folder = data_folder()
        if folder is None:
            print("skipped: no test data")
            sys.exit(77)
        self.driver = Driver(self.arguments.driver)
        self.templates = [(name, source) for name, source in templates(folder) if self.arguments.only in name]

    def finish(self, summary, good):
        """The exit status."""
        status = self.driver.close()
        print(f"{summary}; driver ended with {status}")
        return 0 if good and status == 0 else 1
