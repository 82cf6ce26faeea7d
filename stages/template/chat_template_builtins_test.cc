// Statements, filters and methods that few templates use. The expected texts were printed by jinja2 3.1.6 as transformers
// sets it up.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "stages/template/test_render.h"

namespace draftmill::jinja {
namespace {

constexpr std::string_view kVariables = R"({"d": {"a": 1, "b": 2}, "l": [3, 1, 2],
  "m": [{"role": "user", "n": 2}, {"role": "Assistant", "n": 1}, {"role": "user", "n": 5}],
  "tree": [{"v": "a", "c": [{"v": "b", "c": []}]}, {"v": "c", "c": []}]})";

void ExpectAll(const std::vector<std::pair<std::string, std::string>>& cases) {
  for (const auto& [source, expected] : cases) EXPECT_EQ(RenderText(source, kVariables), expected) << source;
}

TEST(ChatTemplateBuiltinsTest, CallBlocksAndWhatGoesBeyondParameters) {
  ExpectAll(
      {{"{% macro m(a) %}<{{ a }}{{ caller() }}>{% endmacro %}{% call m(1) %}x{{ l[0] }}{% endcall %}", "<1x3>"},
       {"{% macro m() %}{{ caller('p', q=2) }}{% endmacro %}{% call(a, q=1) m() %}{{ a }}{{ q }}{% endcall %}", "p2"},
       {"{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "False"},
       {"{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x='y') }}{{ m(*l, **d) }}",
        "1(2, 3){'x': 'y'}3(1, 2){'a': 1, 'b': 2}"},
       {"{% macro m() %}{% for k, v in kwargs | dictsort %}{{ k }}={{ v }};{% endfor %}{% endmacro %}{{ m(**d) }}",
        "a=1;b=2;"},
       {"{{ dict(**d) }}{{ dict(x=0, **d).a }}", "{'a': 1, 'b': 2}1"}});
}

TEST(ChatTemplateBuiltinsTest, WithPrintAndRecursiveLoops) {
  ExpectAll({{"{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{{ b }}", "211"},
             {"{% with a, b = l[:2] %}{{ a }}-{{ b }}{% endwith %}", "3-1"},
             {"{% print l[0], 'x' %}", "3x"},
             {"{% for x in tree recursive %}{{ loop.depth }}{{ x.v }}{{ '(' ~ loop(x.c) ~ ')' if x.c }}{% endfor %}",
              "1a(2b)1c"},
             {"{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "TrueFalseTrue"},
             {"{{ 2 ** 3 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2.0 ** 0.5 }} {{ (-1) ** 1000001 }}",
              "8 0.5 64 4 1.4142135623730951 -1"}});
}

TEST(ChatTemplateBuiltinsTest, FormatsText) {
  ExpectAll({{"{{ '%s is %d, %.2f%%' % ('a', 3, 12.345) }} {{ '%s' % none }} {{ '%s' % l }} {{ '%(a)s-%(b)03d' % d }}",
              "a is 3, 12.35% None [3, 1, 2] 1-002"},
             {"{{ '%-5s|%5s|%05d|%+d|%x|%X|%o|%e|%g' % ('ab', 'é', -42, 7, 255, 255, 8, 1234.5, 0.0001) }}",
              "ab   |    é|-0042|+7|ff|FF|10|1.234500e+03|0.0001"},
             {"{{ '%s and %r' | format('a', 'b') }} {{ '%(x)s' | format(x=1) }}", "a and 'b' 1"},
             {"{{ '{} {} {{}}'.format('a', 1) }} {{ '{1}{0}{1}'.format('a', 'b') }} {{ '{x}{y[0]}{z.a}'.format(x=1, "
              "y=l, z=d) }}",
              "a 1 {} bab 131"},
             {"{{ '{:>5}|{:<5}|{:^5}|{:*^7}|{!r}'.format('a', 'b', 'é', 'd', 'e') }}", "    a|b    |  é  |***d***|'e'"},
             {"{{ '{:05d}|{:,}|{:.3f}|{:+}|{:x}|{:b}|{:.1%}|{:>6}|{:e}'.format(42, 1234567, 3.14159, 7, 255, 5, 0.256, "
              "1.5, 12345.678) }}",
              "00042|1,234,567|3.142|+7|ff|101|25.6%|   1.5|1.234568e+04"},
             {"{{ '{}{:.2}'.format(true, 'abc') }} {{ '{:_}'.format(1234567) }} {{ '{:<6}|'.format(3) }}",
              "Trueab 1_234_567 3     |"},
             {"{{ 'ab'.center(7) }}|{{ 'ab'.center(6, '*') }}|{{ 'é'.ljust(3) }}|{{ 'é'.rjust(3, '-') }}|{{ "
              "'-4'.zfill(5) }}|{{ 'abcab'.rindex('ab') }}",
              "   ab  |**ab**|é  |--é|-0004|3"}});
}

TEST(ChatTemplateBuiltinsTest, FiltersOfListsAndNumbers) {
  ExpectAll(
      {{"{{ l | min }}{{ l | max }}{{ ['b', 'A'] | min }}{{ ['b', 'A'] | max(case_sensitive=true) }}{{ [] | min }}{{ m "
        "| max(attribute='n') }}",
        "13Ab{'role': 'user', 'n': 5}"},
       {"{{ l | sum }} {{ m | sum(attribute='n') }} {{ [[1], [2]] | sum(start=[]) }} {{ [0.5, 1] | sum(start=1) }}",
        "6 8 [1, 2] 2.5"},
       {"{{ 2.5 | round }} {{ 3.456 | round(2) }} {{ 7 | round }} {{ 2.1 | round(method='ceil') }} {{ 2.98 | round(1, "
        "'floor') }} {{ 1.005 | round(2) }}",
        "2.0 3.46 7 3.0 2.9 1.0"},
       {"{{ l | batch(2) | list }}{{ l | batch(2, 'x') | list }}{{ range(7) | slice(3) | list }}{{ range(7) | slice(3, "
        "'-') | list }}",
        "[[3, 1], [2]][[3, 1], [2, 'x']][[0, 1, 2], [3, 4], [5, 6]][[0, 1, 2], [3, 4, '-'], [5, 6, '-']]"},
       {"{% for role, items in m | groupby('role') %}{{ role }}:{{ items | length }};{% endfor %}{{ (m | "
        "groupby('role'))[1].list | length }}{{ (m | groupby('role'))[0].grouper }}",
        "Assistant:1;user:2;2Assistant"},
       {"{{ m | groupby('role') | map(attribute='list') | map('length') | list }}{{ 'a' % l }}", "[1, 2]a"},
       {"{{ m | sort(attribute='role,n') | map(attribute='n') | list }}", "[1, 2, 5]"}});
}

TEST(ChatTemplateBuiltinsTest, FiltersOfText) {
  ExpectAll({{"{{ \"it's a-b (c) HELLO wORLD\" | title }} {{ \"it's\".title() }} {{ 'one two, three' | wordcount }} {{ "
              "'ab' | center(6) }}|",
              "It's A-B (C) Hello World It'S 3   ab  |"},
             {"{{ 'foo bar baz' | truncate(9) }}|{{ 'foo bar baz' | truncate(9, leeway=0) }}|{{ 'foo bar baz' | "
              "truncate(7, true, leeway=0) }}",
              "foo bar baz|foo...|foo ..."},
             {"{{ '<a href=\"x\">\\'&' | e }} {{ '<' | escape }} {{ ('<' | e) | e }} {{ '½²' .isalnum() }}{{ "
              "'²'.isdigit() }}{{ '½'.isdigit() }}",
              "&lt;a href=&#34;x&#34;&gt;&#39;&amp; &lt; &lt; TrueTrueFalse"}});
}

TEST(ChatTemplateBuiltinsTest, WhatPythonRefusesIsRefused) {
  for (const std::string source : {"{{ '%s %s' % 'a' }}",
                                   "{{ '%s' % ('a', 'b') }}",
                                   "{{ '%d' % 'a' }}",
                                   "{{ '{}{0}'.format(1) }}",
                                   "{{ '{}'.format() }}",
                                   "{{ '{x}'.format(y=1) }}",
                                   "{{ '{'.format() }}",
                                   "{{ '}'.format() }}",
                                   "{{ '{:d}'.format('a') }}",
                                   "{{ '{:>3}'.format(none) }}",
                                   "{{ ['a'] | sum }}",
                                   "{{ [1, 'a'] | min }}",
                                   "{{ 'a' | round }}",
                                   "{{ 0 ** -1 }}",
                                   "{{ 2 ** 64 }}",
                                   "{{ l | batch }}",
                                   "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}",
                                   "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
                                   "{% for x in l %}{{ loop(l) }}{% endfor %}",
                                   "{{ dict(**l) }}",
                                   "{{ dict(a=1, **d) }}",
                                   "{% call 1 %}{% endcall %}",
                                   "{% with 1 = 2 %}{% endwith %}",
                                   "{% for x in tree recursive %}{{ loop(tree) }}{% endfor %}",
                                   "{{ 'a'.center(100000) }}"}) {
    EXPECT_TRUE(RenderText(source, kVariables).starts_with("! ")) << source;
  }
}

/// What is formatted keeps its origin: the mask must see the message's own text through it.
TEST(ChatTemplateBuiltinsTest, FormattedTextKeepsItsOrigin) {
  Evaluator evaluator({});
  const auto parsed = ChatTemplate::Parse("{{ '<%s|%5s>' % (x, x) }}{{ '[{}|{:>5}]'.format(x, x) }}{{ x | title }}");
  ASSERT_TRUE(parsed.ok());
  const ParsedTemplate& tree = (*parsed)->parsed();
  std::vector<Value> values(tree.names.size(), Value::Undefined(nullptr));
  values[tree.name_ids.at("x")] = TextOf(evaluator.arena(), "abc", Provenance::Field(7));
  ASSERT_TRUE(evaluator.Render(tree, values, {2025, 3, 9, 7, 5, 3}).ok());
  std::string fields;
  for (const OutputRun& run : evaluator.output()) {
    if (run.tag.is_field()) fields.append(run.data, run.size);
  }
  EXPECT_EQ(fields, "abcabcabcabcAbc");
}

}  // namespace
}  // namespace draftmill::jinja
