#!/usr/bin/env python3
"""Property test: small templates made at random from the grammar that the engine has, rendered by it and by jinja2.

    .venv/bin/python tests/oracle/generated_templates.py --driver build-text/stages/tokenize/tokenize_lines --count 3000

What the engine refuses as "not supported" is no difference; a different text, or a text where jinja2 refuses, is.
Exits 0 where all agree, 1 with the first differences, 77 (skipped) where a package is missing.
"""
import argparse
import copy
import random
import sys
import warnings

SKIPPED = 77
try:
    import template_corpus as corpus
    from driver import Driver
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

ROW = {"messages": [
    {"role": "user", "content": "  Héllo <b>\n world\t", "n": 3, "f": 1.5, "list": [1, 2, 3], "items": "x"},
    {"role": "assistant", "content": "a,b,,c", "flag": True, "nothing": None, "d": {"B": 1, "a": [1, {"z": "é"}], "c": {}}},
    {"role": "user", "content": "", "list": ["x", "Y", "x", ""]}], "tools": [{"name": "t"}]}
VARIABLES = {"s": "ab cd", "i": 7, "neg": -3, "fl": 2.0, "yes": True, "no": False, "nil": None, "l": [3, 1, 2],
             "d": {"k": "v", "n": 1, "x": [1]},
             "tree": [{"v": "a", "c": [{"v": "b", "c": []}, {"v": "b", "c": [{"v": "c"}]}]}, {"v": "a"}], "u": "straße ΑΣ\u00a0"}
TEXTS = ["'a'", "''", "'ab cd'", "' x '", "'é,b'", "\"it's\"", "'a\\nb'", "'Ab'"]
NUMBERS = ["0", "1", "2", "-1", "3", "1.5", "10"]
NAMES = [*VARIABLES, "messages", "missing", "m", "x", "tools"]
METHODS = ["strip()", "upper()", "lower()", "title()", "capitalize()", "split()", "split(',')", "split(' ', 1)", "rsplit(' ', 1)",
           "startswith('a')", "endswith(('b', 'd'))", "replace('a', 'bb')", "replace('', '-')", "lstrip('a ')", "rstrip()",
           "find('b')", "count('a')", "items()", "keys()", "values()", "get('k')", "get('zz', 5)", "splitlines()", "isdigit()",
           "isalpha()", "isspace()", "join(['p', 'q'])", "append(1)", "partition(' ')", "removeprefix('a')", "index('b')", "center(9)",
           "center(8, '*')", "ljust(7)", "rjust(6, 'é')", "zfill(5)", "rindex('b')", "isalnum()", "isascii()", "isdecimal()",
           "format(1, 'x')", "format()"]
FORMATS = ["'{}-{}'.format({}, {})", "'{0}{1}{0}'.format({}, {})", "'{a!r}|{b:>5}'.format(a={}, b={})", "'{:.2f}{:,}'.format({}, {})",
           "'{:<4}{:^6}'.format({}, {})", "'{{{}}}{:5d}'.format({}, {})", "'%s|%r' % ({}, {})", "'%5s%-4s|' % ({}, {})", "'%d%05.1f' % ({}, {})",
           "'%x%+d' % ({}, {})", "'%(a)s%%%(b)s' | format(a={}, b={})", "'%s' | format({}, {})", "'{:e}{:g}'.format({}, {})",
           "'{:06.2f}{:+}'.format({}, {})", "'{:x}{:%}'.format({}, {})", "'%.2s%3d' % ({}, {})", "'{:*^9}{:_}'.format({}, {})"]
FILTERS = ["length", "upper", "lower", "trim", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "string", "list", "first",
           "last", "join(',')", "default('D')", "default('D', true)", "capitalize", "sort", "sort(reverse=true)", "unique|list",
           "map('upper')|list", "map(attribute='role')|list", "selectattr('role', 'equalto', 'user')|list", "select|list",
           "reject('none')|list", "int", "float", "abs", "dictsort", "items|list", "reverse|list", "indent(2)", "indent(1, true)",
           "replace('a', 'Z')", "safe", "tojson(ensure_ascii=true)", "rejectattr('flag')|list", "map('length')|list",
           "tojson(separators=(',', ':'))", "dictsort(by='value')", "sort(attribute='role')|length", "min", "max", "sum", "round", "round(1)",
           "round(1, 'floor')", "round(method='ceil')", "title", "wordcount", "center(9)", "batch(2)|list", "batch(2, 'x')|list",
           "slice(2)|list", "slice(3, 0)|list", "groupby('role')|list", "groupby('role')|map(attribute='list')|map('length')|list",
           "truncate(5)", "truncate(4, true, '')", "truncate(6, leeway=0)", "e", "escape", "max(attribute='role')", "sum(start=2)",
           "sort(attribute='role,content')|map(attribute='content')|list", "min(case_sensitive=true)", "sum(attribute='n')"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence", "true", "false", "boolean",
         "integer", "float", "odd", "even", "divisibleby 2", "eq 1", "in [1, 'a']", "lower", "upper", "ge 2"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "**", "==", "!=", "<", ">=", "in", "not in", "and", "or"]


warnings.simplefilter("ignore")  # jinja2 compiles to Python, which warns of some subscripts


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, options):
        return self.random.choice(options)

    def expr(self, depth=3):
        kind = self.random.randrange(15 if depth > 0 else 3)
        if kind == 0:
            return self.pick(TEXTS)
        if kind == 1:
            return self.pick(NUMBERS)
        if kind == 2:
            return self.pick(NAMES)
        if kind == 3:
            return f"({self.expr(depth - 1)} {self.pick(BINARY)} {self.expr(depth - 1)})"
        if kind == 4:
            return f"({self.expr(depth - 1)})|{self.pick(FILTERS)}"
        if kind == 5:
            return f"({self.expr(depth - 1)}).{self.pick(METHODS)}"
        if kind == 6:
            return f"({self.expr(depth - 1)} is {self.pick(['', 'not '])}{self.pick(TESTS)})"
        if kind == 7:
            return f"({self.expr(depth - 1)} if {self.expr(depth - 1)}{' else ' + self.expr(depth - 1) if self.random.random() < 0.7 else ''})"
        if kind == 8:
            return "[" + ", ".join(self.expr(depth - 1) for _ in range(self.random.randrange(3))) + "]"
        if kind == 9:
            return "{" + ", ".join(f"{self.pick(TEXTS)}: {self.expr(depth - 1)}" for _ in range(self.random.randrange(3))) + "}"
        if kind == 10:
            bounds = [self.pick(["", "0", "1", "-1", "2", "-5", "i"]) for _ in range(2)] + [self.pick(["", "1", "-1", "2", "-2"])]
            # jinja2 folds a slice of a constant by another rule than it evaluates one
            return f"{self.pick(NAMES)}[{':'.join(bounds)}]"
        if kind == 11:
            return f"({self.expr(depth - 1)})[{self.pick(['0', '-1', '9', repr('role'), repr('k'), repr('items')])}]"
        if kind == 12:
            return f"({self.expr(depth - 1)}).{self.pick(['role', 'content', 'k', 'zz', 'items', 'list', 'd'])}"
        if kind == 13:
            before, between, after = self.pick(FORMATS).replace("({}, {})", "(\0, \0)").replace("={}", "=\0").split("\0")
            return f"({before}{self.expr(depth - 1)}{between}{self.expr(depth - 1)}{after})"
        return f"(not {self.expr(depth - 1)})"

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.random.randrange(1, 4)))

    def tag(self, inside):
        return "{%" + self.pick(["", "", "-", "+"]) + " " + inside + " " + self.pick(["", "", "-"]) + "%}" + self.pick(["", "\n", "  \n"])

    def statement(self, depth=2):
        kind = self.random.randrange(16 if depth > 0 else 3)
        if kind == 0:
            return self.pick(["text", " \n  ", "a\n", "  b ", "{# c #}\n", "\n\n"])
        if kind in (1, 2):
            return "{{" + self.pick(["", "-"]) + " " + self.expr() + " " + self.pick(["", "-"]) + "}}"
        if kind == 3:
            other = self.tag("else") + self.body(depth - 1) if self.random.random() < 0.5 else ""
            return self.tag("if " + self.expr(2)) + self.body(depth - 1) + other + self.tag("endif")
        if kind in (4, 5, 6):
            target, items = self.pick([("m", "messages"), ("x", "l"), ("x", self.expr(1)), ("x, y", "d.items()"), ("m", "messages[::-1]"),
                                       ("x", "range(3)"), ("m", "messages if m.role == 'user'"), ("x", "l if x > 1")])
            inside = self.body(depth - 1)
            if self.random.random() < 0.5:
                inside += "{{ loop." + self.pick(["index", "index0", "first", "last", "length", "revindex", "previtem", "nextitem"]) + " }}"
            if self.random.random() < 0.3:
                inside += self.tag("if " + self.expr(1)) + self.tag(self.pick(["break", "continue"])) + self.tag("endif") + "t"
            other = self.tag("else") + self.body(depth - 1) if self.random.random() < 0.3 else ""
            return self.tag(f"for {target} in {items}") + inside + other + self.tag("endfor")
        if kind == 7:
            return self.tag(f"set {self.pick(['x', 'w'])} = {self.expr(2)}")
        if kind == 8:
            return self.tag(f"set {self.pick(['x', 'w'])}{self.pick(['', ' | upper'])}") + self.body(depth - 1) + self.tag("endset")
        if kind == 9:
            return (self.tag("set ns = namespace(v=1)") + self.tag("for q in l") + self.tag(f"set ns.v = {self.pick(['ns.v + q', 'q', self.expr(1)])}")
                    + self.tag("endfor") + "{{ ns.v }}")
        if kind == 10:
            return (self.tag(f"macro f(a, b={self.expr(1)})") + self.body(depth - 1) + "{{ a }}{{ b }}" + self.tag("endmacro")
                    + "{{ f(" + self.pick(["1", "1, 2", "b=3", "a=s, b=l", "", "1, 2, 3"]) + ") }}")
        if kind == 11:
            return (self.tag(f"macro g({self.pick(['', 'a', 'a=2'])})") + self.body(depth - 1)
                    + self.pick(["{{ caller() }}", "{{ caller(1) }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller is defined }}"]) + self.tag("endmacro")
                    + self.tag(f"call{self.pick(['', '(z)', '(z=3)'])} g({self.pick(['', '1', '1, 2', 'b=3', '*l', '**d'])})")
                    + self.body(depth - 1) + "{{ z }}" + self.tag("endcall"))
        if kind == 12:
            return (self.tag(f"with {self.pick(['x', 'i'])} = {self.expr(1)}{self.pick(['', ', w = x'])}") + self.body(depth - 1) + "{{ x }}{{ w }}"
                    + self.tag("endwith") + "{{ x }}")
        if kind == 13:
            return self.tag(f"print {self.expr(1)}{self.pick(['', ', ' + self.expr(1)])}")
        if kind == 14:
            return (self.tag("for x in tree recursive") + "{{ loop.depth }}{{ x.v }}" + self.body(depth - 1)
                    + self.pick(["{{ loop(x.c) }}", "[{{ loop(x.c)|upper }}]", "{% if x.c %}{{ loop(x.c) }}{% endif %}", "{{ loop.changed(x.v) }}"])
                    + self.tag("endfor"))
        return self.tag("filter " + self.pick(["upper", "trim", "replace('a', 'b')|trim"])) + self.body(depth - 1) + self.tag("endfilter")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reports", type=int, default=8)
    arguments = parser.parse_args()
    driver = Driver(arguments.driver)
    equal = refused = unsupported = differ = 0
    for number in range(arguments.count):
        maker = Maker(arguments.seed * 1_000_003 + number)
        source = "".join(maker.statement() for _ in range(maker.random.randrange(1, 5)))
        # Copies: jinja2's indent of a list lengthens that list.
        theirs = corpus.render(source, copy.deepcopy(ROW), copy.deepcopy(VARIABLES))
        ours = driver.ask({"config": {"template": source, "variables": VARIABLES, "now": corpus.NOW}})
        if "error" not in ours:
            ours = driver.ask({"render": ROW})
        if "not supported" in ours.get("error", ""):
            unsupported += 1
        elif isinstance(theirs, Exception) and "error" in ours:
            refused += 1
        elif not isinstance(theirs, Exception) and ours.get("text") == theirs:
            equal += 1
        elif not isinstance(theirs, Exception) and " at 0x" in theirs:
            unsupported += 1  # the address of a Python object: no text that a template means
        else:
            differ += 1
            if differ <= arguments.reports:
                print(f"#{number} {source!r}\n  ours   {ours}\n  jinja2 {theirs!r}")
    status = driver.close()
    print(f"{equal} equal, {refused} refused by both, {unsupported} beyond the engine, {differ} differ; driver ended with {status}")
    return 0 if differ == 0 and status == 0 and equal > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
