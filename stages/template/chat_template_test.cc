#include "stages/template/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/test_clock.h"
#include "stages/template/lexer.h"
#include "stages/template/test_render.h"

namespace draftmill::jinja {
namespace {

using Case = std::pair<std::string, std::string>;

void ExpectAll(const std::vector<Case>& cases, std::string_view variables = "{}") {
  for (const auto& [source, expected] : cases) EXPECT_EQ(RenderText(source, variables), expected) << source;
}

// The expected texts of this file were printed by jinja2 3.1.6 as transformers sets it up.

TEST(ChatTemplateTest, PrintsAsPythonDoes) {
  ExpectAll({{"{{ none }} {{ true }} {{ 1 }} {{ 1.0 }} {{ 1e16 }} {{ 0.1 }}", "None True 1 1.0 1e+16 0.1"},
             {"{{ [1, 'a', none, 1.5, true] }}", "[1, 'a', None, 1.5, True]"},
             {"{{ {'a': 1, 'b': [1]} }}", "{'a': 1, 'b': [1]}"},
             {"{{ (1,) }} {{ () }} {{ 1, 2 }}", "(1,) () (1, 2)"},
             {"{{ [\"it's\", 'q\"', '\\n\\\\'] }}", "[\"it's\", 'q\"', '\\n\\\\']"},
             {"{{ missing }}|{{ [missing] }}", "|[Undefined]"},
             {"{{ {'a': 1}.items() }}", "dict_items([('a', 1)])"}});
}

TEST(ChatTemplateTest, Arithmetic) {
  ExpectAll({{"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }}", "3 -4 1 2 3.5"},
             {"{{ 2 * 3 + 4 - 1 }} {{ -2 | abs }} {{ 1 + 1.5 }}", "9 2 2.5"},
             {"{{ 'a' * 3 }} {{ [1] * 2 }} {{ 'a' ~ 1 ~ none }}", "aaa [1, 1] a1None"},
             {"{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}", "True True True True"},
             {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 2 in [1, 2] }} {{ 'x' not in 'abc' }}", "True False True True"}});
}

TEST(ChatTemplateTest, Slices) {
  ExpectAll({{"{{ [1,2,3,4][::-1] }} {{ [1,2,3,4][1:3] }} {{ [1,2,3,4][-2:] }}", "[4, 3, 2, 1] [2, 3] [3, 4]"},
             {"{{ 'héllo'[1:3] }} {{ 'héllo'[::-1] }} {{ 'abc'[-1] }} {{ 'abc'[5] }}|", "él olléh c |"},
             {"{{ [1,2,3,4,5][4:0:-2] }} {{ [1,2][5:] }} {{ 'abc'[:-5] }}|", "[5, 3] [] |"}});
}

TEST(ChatTemplateTest, ScopesAreJinjas) {
  ExpectAll(
      {{"{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = x + i %}{{ x }};{% endfor %}{{ x }}", "12;13;1"},
       {"{% if true %}{% set x = 5 %}{% endif %}{{ x }}", "5"},
       {"{% set ns = namespace(n=0) %}{% for i in [1,2,3] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6"},
       {"{% macro m(a, b=2) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{% set c = 9 %}{{ m(1) }} {{ m(1, b=3) }}", "129 139"},
       {"{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "1"},
       {"{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1]) }}{{ m(3, *(4,)) }}{{ m(*'é', b=5) }}{{ m(*x) }}",
        "1234é52"},
       {"{{ range(*[1, 4]) | list }}{{ [1, 2] | join(*['-']) }}{{ 'a.b'.split(*['.']) }}", "[1, 2, 3]1-2['a', 'b']"},
       {"{% set x %}a{{ 1 }}{% set y = 2 %}{% endset %}{{ x }}{{ y }}", "a1"},
       {"{% filter upper %}a{{ 'b' }}{% endfilter %}", "AB"}});
}

TEST(ChatTemplateTest, Loops) {
  ExpectAll(
      {{"{% for a, b in [(1,2),(3,4)] %}{{ a }}{{ b }}{% if not loop.last %},{% endif %}{% endfor %}", "12,34"},
       {"{% for i in [1,2,3,4] if i % 2 == 0 %}{{ loop.index }}{{ i }}{{ loop.length }} {% endfor %}", "122 242 "},
       {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
       {"{% for i in [1,2,3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"},
       {"{% for i in [1,2,3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% else %}e{% endfor %}", "1"},
       {"{% for i in [1,2] %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.revindex0 }};{% endfor %}", "21;10;"},
       {"{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}{% for c in 'hé' %}{{ c }}.{% endfor %}", "abh.é."},
       {"{% for x in missing %}x{% endfor %}|", "|"}});
}

TEST(ChatTemplateTest, TextMethods) {
  ExpectAll(
      {{"{{ ' a b '.strip() }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'a.b.c'.split('.') }}", "a b|axx|['a', 'b', 'c']"},
       {"{{ '  a  b c '.split() }}{{ '  a  b c '.split(none, 1) }}{{ 'a,b,c'.rsplit(',', 1) }}",
        "['a', 'b', 'c']['a', 'b c ']['a,b', 'c']"},
       {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abcabc'.replace('b', 'X', 1) }}",
        "True True aXcabc"},
       {"{{ 'straße'.upper() }} {{ 'ΑΣ'.lower() }} {{ 'hello world'.title() }} {{ 'hELLO'.capitalize() }}",
        "STRASSE ας Hello World Hello"},
       {"{{ 'abcb'.find('b') }} {{ 'abcb'.rfind('b') }} {{ 'abcb'.count('b') }} {{ ','.join(['a', 'b']) }}",
        "1 3 2 a,b"},
       {"{{ 'a\\nb\\r\\nc'.splitlines() }} {{ 'a=b=c'.partition('=') }}", "['a', 'b', 'c'] ('a', '=', 'b=c')"},
       {"{{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1}['items'] is mapping }}", "None 2 False"}});
}

TEST(ChatTemplateTest, Filters) {
  ExpectAll(
      {{"{{ {'b': 1, 'a': [1, 'é<']} | tojson }}", "{\"b\": 1, \"a\": [1, \"é<\"]}"},
       {"{{ {'b': 1, 'a': {}} | tojson(indent=2) }}", "{\n  \"b\": 1,\n  \"a\": {}\n}"},
       {"{{ ['é', '🚀'] | tojson(ensure_ascii=true) }}", "[\"\\u00e9\", \"\\ud83d\\ude80\"]"},
       {"{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", "{\"a\":2,\"b\":1}"},
       {"{{ {'B': 1, 'a': 2} | dictsort }} {{ ['b', 'A', 'c'] | sort }}", "[('a', 2), ('B', 1)] ['A', 'b', 'c']"},
       {"{{ [1, 2] | join('-') }} {{ [1, 2] | first }} {{ 'abc' | last }} {{ 'a' | default('b') }} {{ x | d('y') }}",
        "1-2 1 c a y"},
       {"{{ [{'a': 1}, {'a': 2}] | map(attribute='a') | list }} {{ ['a'] | map('upper') | join }}", "[1, 2] A"},
       {"{{ [{'r': 'x'}, {'r': 'y'}] | selectattr('r', 'equalto', 'y') | list }}", "[{'r': 'y'}]"},
       {"{{ [1, 0, 2] | select | list }} {{ ['a', 'b'] | reject('in', ['a']) | list }}", "[1, 2] ['b']"},
       {"{{ 'a\\nb\\n\\nc' | indent(2) }}", "a\n  b\n\n  c"},
       {"{{ 'a\\nb' | indent(2, first=true) }} {{ '3' | int + 1 }} {{ '3.7' | int }} {{ 'x' | int(5) }}",
        "  a\n  b 4 3 5"},
       {"{{ ['a', 'A', 'b'] | unique | list }} {{ '' | default('e', true) }} {{ 'abc' | length }}", "['a', 'b'] e 3"},
       {"{{ 'a<' | safe }} {{ ('a<' | safe) + '<' }}", "a< a<&lt;"}});
}

TEST(ChatTemplateTest, Tests) {
  ExpectAll(
      {{"{{ x is defined }} {{ x is undefined }} {{ none is none }} {{ 1 is number }} {{ true is number }}",
        "False True True True True"},
       {"{{ 'a' is string }} {{ [] is sequence }} {{ {} is mapping }} {{ 'a' is iterable }} {{ 1 is iterable }}",
        "True True True True False"},
       {"{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 1 is boolean }} {{ 3 is odd }}",
        "True False True False True"},
       {"{{ 1 is not none }} {{ 4 is divisibleby 2 }} {{ 1 is eq 1 }} {{ x is sequence }}", "True True True True"}});
}

/// Whether rendering ends with a refusal for its limits, whatever it would have to do for it.
bool IsBounded(const std::string& source) {
  const std::string text = RenderText(source);
  return text.starts_with("! ") && text.find("does not end within") != std::string::npos;
}

TEST(ChatTemplateTest, WhatTakesForEverEndsAtItsLimit) {
  // Two lists that share their parts down to the bottom: 2^60 comparisons.
  const std::string shared =
      "{% set n = namespace(l=['a'], m=['a']) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}"
      "{% set n.m = [n.m, n.m] %}{% endfor %}";
  EXPECT_TRUE(IsBounded(shared + "{{ n.l == n.m }}"));
  EXPECT_TRUE(IsBounded(shared + "{{ n.l in [1, n.m] }}"));
  EXPECT_TRUE(IsBounded(shared + "{{ n.l < n.m }}"));
  // Searches that fail late at every place.
  const std::string texts = "{% set s = 'a' * 1000000 %}{% set t = 'a' * 500000 ~ 'b' %}{% for i in range(9999) %}";
  for (const char* use :
       {"t in s", "s.find(t)", "s.rfind(t)", "s.split(t)", "s.replace(t, '')", "s.strip('b' * 500000 ~ 'a')"}) {
    EXPECT_TRUE(IsBounded(texts + "{% if " + use + " %}{% endif %}{% endfor %}")) << use;
  }
}

TEST(ChatTemplateTest, ErrorsAreThoseOfJinja) {
  ExpectAll({{"{{ x.y }}", "! template line 1: 'x' is undefined"},
             {"{{ {}.a.b }}", "! template line 1: 'a' is undefined"},
             {"\n{{ raise_exception('No ' ~ 1) }}", "! the template refuses the row: No 1"},
             {"{{ 'a' + 1 }}", "! template line 1: can only concatenate values of one type, not 'str' and 'int'"},
             {"{{ [].append(1) }}", "! template line 1: the sandbox forbids 'append'"},
             {"{{ range(*5) }}", "! template line 1: cannot iterate over 'int'"},
             {"{{ range(*[1], 2) }}", "! template line 1: invalid syntax for function call expression"},
             {"{{ [x for y] }}", "! template line 1: unexpected 'for', expected ','"},
             {"{% for i in 5 %}{% endfor %}", "! template line 1: cannot iterate over 'int'"}});
}

TEST(ChatTemplateTest, RefusesByName) {
  ExpectAll({{"{% include 'x' %}", "! template line 1: {% include %} is not supported"},
             {"\n{% block f %}{% endblock %}", "! template line 2: {% block %} is not supported"},
             {"{{ x | wordwrap }}", "! template line 1: the filter 'wordwrap' is not supported"},
             {"{{ x | nosuch }}", "! template line 1: No filter named 'nosuch'."},
             {"{% if true %}ok{% else %}{{ x | nosuch }}{% endif %}", "ok"},
             {"{{ 1 | nosuch if false else 'ok' }}{{ 'ok' if true else (1 is nosuch) }}", "okok"},
             {"{{ 1 | nosuch if true else 'ok' }}", "! template line 1: No filter named 'nosuch'."},
             {"{{ 'ok' if true else 'x' }}{{ 1 is nosuch }}", "! template line 1: No test named 'nosuch'."},
             {"{{ 'a'.encode() }}", "! template line 1: the method .encode() is not supported"},
             {"{{ '{:n}'.format(1) }}", "! template line 1: the format specification 'n' is not supported"},
             {"{{ '%c' % 1 }}", "! template line 1: a conversion of this form in a text before % is not supported"},
             {"{% nosuch %}", "! template line 1: unknown tag 'nosuch'"}});
}

TEST(ChatTemplateTest, StrftimeTakesTheFixedMoment) {
  EXPECT_EQ(RenderText("{{ strftime_now('%d %b %Y %H:%M %A %j %-d %I %p %%') }}"),
            "09 Mar 2025 07:05 Sunday 068 9 07 AM %");
  EXPECT_EQ(RenderText("{{ strftime_now('%Q') }}"),
            "! template line 1: strftime_now: the conversion %Q is not supported");
}

std::string Repeated(std::string_view text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

/// Every hostile template ends with a refusal, well within a second.
TEST(ChatTemplateTest, HostileTemplatesEnd) {
  std::string deep_if, deep_brackets = "{{ ", deep_not = "{{ ", long_sum = "{{ 1", deep_lists = "{{ ";
  for (int i = 0; i < 100'000; ++i) {
    deep_if += "{% if x %}";
    deep_brackets += "(";
    deep_not += "not ";
    long_sum += " + 1";
    deep_lists += "[";
  }
  const std::vector<std::string> sources = {
      deep_if,
      deep_brackets + "1",
      deep_not + "1 }}",
      long_sum + " }}",
      deep_lists,
      "{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}{% "
      "endfor %}",
      "{{ 'a' * 10000000000 }}",
      "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100000) %}{% set ns.s = ns.s + ns.s %}{% endfor "
      "%}{{ ns.s }}",
      "{% for i in range(100000) %}{{ 'a' * 1000000 }}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{{ range(10000000000) }}",
      "{{ ('a' * 60000000) | replace('a', 'bbbbbbbbbb') }}",
      "{% for i in range(100000) %}{{ ('a' * 1000000) | upper | length }}{% endfor %}",
      "{{ 'x' | tojson(indent=100000000) }}",
      "{{ ('a,' * 30000000).split(',') | length }}",
      "{{ (['aaaaaaaaaaaaaaaaaaaa'] * 4000000) | join('bbbbbbbbbbbbbbbbbbbbbbb') | length }}",
      std::string(kMaximumTemplateBytes + 1, 'x'),
      "{{ [" + Repeated("1,", kMaximumTokens / 2) + "] }}",
      Repeated("{{1}}a", kMaximumTokens / 3),
      "{% for i in range(100000) %}{{ 'a' * 40 }}{% endfor %}",
      "{% set x %}{% for i in range(100000) %}{{ 'a' * 40 }}{% endfor %}{% endset %}",
  };
  for (const std::string& source : sources) {
    const double start = ProcessorSeconds();
    const std::string text = RenderText(source);
    const double seconds = ProcessorSeconds() - start;
    EXPECT_TRUE(text.starts_with("! ")) << source.substr(0, 80);
    EXPECT_LT(seconds, 1.0 * kSanitizerSlowdown) << source.substr(0, 80);
  }
}

TEST(ChatTemplateTest, GenerationPromptsThatAreConstantAreSeen) {
  const auto is_constant = [](std::string_view source) { return (*ChatTemplate::Parse(source))->prompt_is_constant(); };
  EXPECT_TRUE(
      is_constant("{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}A{% endif %}"));
  EXPECT_TRUE(is_constant("{% if add_generation_prompt %}{% if think %}T{% endif %}{% endif %}"));
  EXPECT_FALSE(
      is_constant("{% for m in messages %}{% if loop.last and add_generation_prompt %}A{% endif %}{% endfor %}"));
  EXPECT_FALSE(is_constant("{% set x = messages[-1] %}{% if add_generation_prompt %}{{ x }}{% endif %}"));
  EXPECT_FALSE(is_constant("{% if add_generation_prompt and ns.x %}A{% endif %}{% set ns = namespace(x=1) %}"));
  EXPECT_FALSE(is_constant("{% for m in messages %}{% endfor %}A"));
  EXPECT_TRUE(
      is_constant("A{% for m in messages %}{% endfor %}{% set x = 1 %}{% if add_generation_prompt %}A{% endif %}"));
  EXPECT_FALSE(is_constant(
      "{% for m in messages %}{% endfor %}{% if open %}]{% endif %}{% if add_generation_prompt %}A{% endif %}"));
}

}  // namespace
}  // namespace draftmill::jinja
