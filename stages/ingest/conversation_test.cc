#include "stages/ingest/conversation.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/test_data.h"

namespace draftmill {
namespace {

json::Value Json(std::string_view text) {
  Result<json::Value> value = json::Parse(text);
  EXPECT_TRUE(value.ok()) << value.status().message() << " in " << text;
  return value.ok() ? std::move(value).value() : json::Value();
}

/// The canonical text, or "reason: message".
std::string Canonical(std::string_view row, RowForm form = RowForm::kAuto, bool normalize = true) {
  RowRefusal refusal;
  const Result<json::Value> conversation = CanonicalConversation(Json(row), form, normalize, &refusal);
  if (!conversation.ok()) {
    EXPECT_EQ(conversation.status().code(), StatusCode::kInvalidInput);
    EXPECT_FALSE(refusal.reason.empty());
    return refusal.reason + ": " + conversation.status().message();
  }
  return json::Write(*conversation);
}

std::string Messages(std::string_view messages, bool normalize = true) {
  return Canonical("{\"messages\":" + std::string(messages) + "}", RowForm::kAuto, normalize);
}

TEST(ConversationTest, ReadsEveryForm) {
  const std::string expected = R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})";
  for (const char* row :
       {R"({"id":7,"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}],"tools":null})",
        R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}],"tools":"[]"})",
        R"({"conversations":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})",
        R"({"instruction":"Q","input":"","output":"A"})", R"({"instruction":"Q","output":"A"})",
        R"({"instruction":"","input":"Q","output":"A","history":null})", R"({"prompt":"Q","completion":"A"})",
        R"({"prompt":[{"role":"user","content":"Q"}],"completion":[{"role":"assistant","content":"A"}]})",
        R"({"question_id":1,"turns":["Q"],"reference":["A"]})"}) {
    EXPECT_EQ(Canonical(row), expected) << row;
  }
}

TEST(ConversationTest, ReadsSystemPromptsHistoryAndEarlierAnswers) {
  EXPECT_EQ(
      Canonical(R"({"system":"S","instruction":"Q","input":"I","output":"A","history":[["a","b"]]})"),
      R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
      R"({"role":"user","content":"Q\nI"},{"role":"assistant","content":"A"}]})");
  EXPECT_EQ(Canonical(R"({"system":"S","conversations":[{"from":"gpt","value":"A"}]})"),
            R"({"messages":[{"role":"system","content":"S"},{"role":"assistant","content":"A"}]})");
  EXPECT_EQ(
      Canonical(R"({"prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"completion":"A"})"),
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","loss_weight":0},)"
      R"({"role":"assistant","content":"A"}]})");
}

TEST(ConversationTest, ReadsPretokenizedRows) {
  EXPECT_EQ(Canonical(R"({"id":1,"input_ids":[1,2,3],"loss_mask":[0,true,1],"text":"abc"})"),
            R"({"input_ids":[1,2,3],"loss_mask":[0,1,1],"text":"abc"})");
  for (const auto& [row, reason] :
       std::vector<std::pair<const char*, const char*>>{{R"({"input_ids":[1]})", "unknown_form"},
                                                        {R"({"input_ids":[1],"loss_mask":[1,0]})", "wrong_type"},
                                                        {R"({"input_ids":[-1],"loss_mask":[1]})", "wrong_type"},
                                                        {R"({"input_ids":[2147483648],"loss_mask":[1]})", "wrong_type"},
                                                        {R"({"input_ids":[1.0],"loss_mask":[1]})", "wrong_type"},
                                                        {R"({"input_ids":[1],"loss_mask":[2]})", "wrong_type"},
                                                        {R"({"input_ids":"1","loss_mask":[1]})", "wrong_type"},
                                                        {R"({"input_ids":[1],"loss_mask":[1],"text":3})", "wrong_type"},
                                                        {R"({"input_ids":[],"loss_mask":[]})", "empty_conversation"}}) {
    EXPECT_EQ(Canonical(row).substr(0, std::string(reason).size() + 1), std::string(reason) + ":") << row;
  }
}

TEST(ConversationTest, RefusesByFixedWords) {
  for (
      const auto& [row, reason] : std::vector<std::pair<std::string, std::string>>{
          {R"([1])", "unknown_form"},
          {R"("text")", "unknown_form"},
          {R"({})", "unknown_form"},
          {R"({"text":"x"})", "unknown_form"},
          {R"({"messages":{}})", "wrong_type"},
          {R"({"messages":null})", "wrong_type"},
          {R"({"messages":[]})", "empty_conversation"},
          {R"({"conversations":[]})", "empty_conversation"},
          {R"({"conversations":[],"system":"x"})", "empty_conversation"},
          {R"({"messages":[{"role":"user","content":"x"}]})", "no_assistant_turn"},
          {R"({"turns":["x"]})", "no_assistant_turn"},
          {R"({"turns":["x"],"reference":[]})", "wrong_type"},
          {R"({"messages":["x"]})", "wrong_type"},
          {R"({"messages":[{"content":"x"}]})", "wrong_type"},
          {R"({"messages":[{"role":3,"content":"x"}]})", "wrong_type"},
          {R"({"messages":[{"role":"human","content":"x"}]})", "unknown_role"},
          {R"({"messages":[{"role":"user"}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant"}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":5}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":{"a":1}}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":["x"]}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":[{"type":"text"}]}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":[{"type":"image_url","image_url":"x"}]}]})",
           "unsupported_part"},
          {R"({"messages":[{"role":"assistant","content":"x","reasoning_content":1}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x","tool_calls":{}}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x","tool_calls":[1]}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x","function_call":"f"}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x","function_call":{"name":"f"},"tool_calls":[{"name":"f"}]}]})",
           "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":null,"audio":{"id":"a"}}]})", "unsupported_part"},
          {R"({"messages":[{"role":"assistant","tool_calls":null}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x"}],"weight":0.5})", "unsupported_weight"},
          {R"({"messages":[{"role":"assistant","content":"x"}],"loss_weight":0})", "unsupported_weight"},
          {R"({"input_ids":[1],"loss_mask":[1],"weight":2})", "unsupported_weight"},
          {R"({"messages":[{"role":"assistant","content":"x"}],"tools":["f"]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x"}],"system":[]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x","loss_weight":0.5}]})", "unsupported_weight"},
          {R"({"messages":[{"role":"assistant","content":"x","weight":2}]})", "unsupported_weight"},
          {R"({"messages":[{"role":"assistant","content":"x","loss_weight":"1"}]})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x"}],"tools":{}})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x"}],"tools":"none"})", "wrong_type"},
          {R"({"messages":[{"role":"assistant","content":"x"}],"documents":"d"})", "wrong_type"},
          {R"({"conversations":[{"from":"visitor7","value":"x"}]})", "unknown_role"},
          {R"({"conversations":[{"from":"gpt"}]})", "wrong_type"},
          {R"({"conversations":[{"value":"x"}]})", "wrong_type"},
          {R"({"conversations":[{"from":"gpt","value":3}]})", "wrong_type"},
          {R"({"conversations":[{"from":"function_call","value":"call it"}]})", "wrong_type"},
          {R"({"instruction":1,"output":"x"})", "wrong_type"},
          {R"({"instruction":"x","output":null})", "wrong_type"},
          {R"({"instruction":"x","output":"y","history":[["a"]]})", "wrong_type"},
          {R"({"prompt":"x","completion":4})", "wrong_type"}}) {
    EXPECT_EQ(Canonical(row).substr(0, reason.size() + 1), reason + ":") << row << " gave " << Canonical(row);
  }
}

TEST(ConversationTest, NamedFormsTakeNoOther) {
  const char* row = R"({"prompt":"p","messages":[{"role":"assistant","content":"x"}]})";
  EXPECT_EQ(Canonical(row, RowForm::kMessages), R"({"messages":[{"role":"assistant","content":"x"}]})");
  EXPECT_EQ(Canonical(row, RowForm::kPromptCompletion).substr(0, 12), "unknown_form");
  for (const char* name : {"auto", "messages", "sharegpt", "alpaca", "prompt_completion", "turns", "pretokenized"}) {
    ASSERT_TRUE(RowFormFromName(name).ok());
    EXPECT_EQ(RowFormName(*RowFormFromName(name)), name);
  }
  EXPECT_EQ(RowFormFromName("sharegtp").status().code(), StatusCode::kInvalidConfig);
}

TEST(ConversationTest, KeepsTheMessagesOwnKeysInOrder) {
  const char* row =
      R"([{"name":"n","role":"user","content":"x","extra":[]},{"role":"tool","tool_call_id":"t","content":"r"},)"
      R"({"role":"assistant","thinking":"t","content":"y","tool_calls":[{"function":{"name":"f","arguments":{"a":null}}}]}])";
  EXPECT_EQ(Messages(row), "{\"messages\":" + std::string(row) + "}");
}

TEST(ConversationTest, FieldsThatSayNothingAreLeftOut) {
  const std::string row =
      R"([{"role":"user","content":null,"name":null,"tool_calls":null},{"role":"assistant","content":"y",)"
      R"("reasoning_content":null,"thinking":null,"function_call":null,"refusal":null,"audio":null,"tool_calls":[]}])";
  EXPECT_EQ(Messages(row), R"({"messages":[{"role":"user","content":""},{"role":"assistant","content":"y"}]})");
  EXPECT_EQ(Messages(row, false), "{\"messages\":" + row + "}");
}

TEST(ConversationTest, ReadsOpenAisOlderAndOtherFields) {
  const std::string functions = R"([{"name":"f","parameters":{}}])";
  const std::string calls =
      R"([{"role":"user","content":"Q"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":)"
      R"("{\"a\": 1}"}},{"role":"function","name":"f","content":"r"},{"role":"assistant","content":"A"}])";
  EXPECT_EQ(Canonical("{\"messages\":" + calls + ",\"functions\":" + functions + "}"),
            R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"","tool_calls":[{"type":)"
            R"("function","function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","name":"f","content":"r"},)"
            R"({"role":"assistant","content":"A"}],"tools":[{"type":"function","function":{"name":"f",)"
            R"("parameters":{}}}]})");
  EXPECT_EQ(Messages(calls, false), "{\"messages\":" + calls + "}");
  EXPECT_EQ(Messages(R"([{"role":"function","content":"r"},{"role":"assistant","content":"A"}])"),
            R"({"messages":[{"role":"function","content":"r"},{"role":"assistant","content":"A"}]})");
  EXPECT_EQ(Messages(R"([{"role":"assistant","function_call":{"name":"f"}}])", false),
            R"({"messages":[{"role":"assistant","function_call":{"name":"f"}}]})");
  for (const char* content : {R"("content":null,)", ""}) {
    EXPECT_EQ(Messages(R"([{"role":"assistant",)" + std::string(content) + R"("refusal":"No."}])"),
              R"({"messages":[{"role":"assistant","content":"No."}]})");
  }
}

TEST(ConversationTest, TakesTheFormOfTheColumnThatIsNotNull) {
  const std::string expected = R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})";
  const std::string nulls = R"({"input_ids":null,"instruction":null,"output":null,"messages":null,"system":null,)";
  EXPECT_EQ(Canonical(nulls + R"("conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})"),
            expected);
  EXPECT_EQ(Canonical(nulls + R"("conversations":[{"role":null,"from":"human","value":"Q"},)"
                              R"({"role":null,"from":"gpt","value":"A","content":null}]})"),
            expected);
  EXPECT_EQ(Canonical(nulls + R"("conversations":null,"prompt":"Q","completion":"A"})"), expected);
  EXPECT_EQ(Messages(R"([{"role":"assistant","content":[{"type":"text","text":null,"value":"A"}]}])"),
            R"({"messages":[{"role":"assistant","content":"A"}]})");
}

TEST(ConversationTest, PutsASystemPromptOfTheRowInFrontOnce) {
  const std::string said = R"({"role":"user","content":"Q"},{"role":"assistant","content":"A"}])";
  const std::string expected = R"({"messages":[{"role":"system","content":"S"},)" + said + "}";
  EXPECT_EQ(Canonical(R"({"system":"S","messages":[)" + said + "}"), expected);
  EXPECT_EQ(Canonical(R"({"system":"S","messages":[{"content":"S","role":"system"},)" + said + "}"),
            R"({"messages":[{"content":"S","role":"system"},)" + said + "}");
  EXPECT_EQ(Canonical(R"({"system":"S","turns":["Q"],"reference":["A"]})"), expected);
}

TEST(ConversationTest, TurnsKeepWhatTemplatesKnow) {
  EXPECT_EQ(
      Canonical(R"({"conversations":[{"from":"human","value":"Q","id":7},{"from":"gpt","value":"","thinking":null,)"
                R"("reasoning_content":"R","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},)"
                R"({"from":"tool","value":"r","name":"f"},{"from":"gpt","value":"A"}]})"),
      R"({"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"","reasoning_content":"R",)"
      R"("tool_calls":[{"function":{"name":"f","arguments":{}}}]},{"role":"tool","content":"r","name":"f"},)"
      R"({"role":"assistant","content":"A"}]})");
}

TEST(ConversationTest, ReadsToolsThatAreTexts) {
  const std::string messages = R"({"messages":[{"role":"assistant","content":"x"}],"tools":)";
  const std::string tool = R"({"type":"function","function":{"name":"f"}})";
  EXPECT_EQ(Canonical(messages + R"(["{\"type\": \"function\", \"function\": {\"name\": \"f\"}}"]})"),
            messages + "[" + tool + "]}");
}

TEST(ConversationTest, KeepsDocuments) {
  const std::string messages = R"({"messages":[{"role":"assistant","content":"x"}])";
  EXPECT_EQ(Canonical(messages + R"(,"documents":[{"text":"d"}]})"), messages + R"(,"documents":[{"text":"d"}]})");
  EXPECT_EQ(Canonical(messages + R"(,"documents":[]})"), messages + "}");
  EXPECT_EQ(Canonical(messages + R"(,"documents":null})"), messages + "}");
}

TEST(ConversationTest, NormalizesOnlyWhereAsked) {
  const char* nulls =
      R"([{"role":"user","content":null},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\": 1}"}}]}])";
  EXPECT_EQ(Messages(nulls), R"({"messages":[{"role":"user","content":""},{"role":"assistant","content":"",)"
                             R"("tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}]})");
  EXPECT_EQ(Messages(nulls, false), "{\"messages\":" + json::Write(Json(nulls)) + "}");

  const char* parts = R"([{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","value":"b"}]}])";
  EXPECT_EQ(Messages(parts), R"({"messages":[{"role":"assistant","content":"ab"}]})");
  EXPECT_EQ(Messages(parts, false), "{\"messages\":" + std::string(parts) + "}");

  for (const char* arguments :
       {R"("{\"a\": ")", R"("[1]")", R"("")", R"("text")", R"("{\"a\":1,\"a\":2}")", "{}", "null"}) {
    const std::string message =
        R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":)" +
        std::string(arguments) + "}}]}]";
    EXPECT_EQ(Messages(message), "{\"messages\":" + message + "}") << "what is no object stays what it is";
  }
}

TEST(ConversationTest, ReadsWeightsAsFlags) {
  for (const auto& [given, expected] :
       std::vector<std::pair<const char*, const char*>>{{R"("loss_weight":0)", R"(,"loss_weight":0)"},
                                                        {R"("loss_weight":1.0)", R"(,"loss_weight":1)"},
                                                        {R"("weight":0)", R"(,"loss_weight":0)"},
                                                        {R"("weight":true)", R"(,"loss_weight":1)"},
                                                        {R"("weight":null)", ""}}) {
    EXPECT_EQ(Messages(std::string(R"([{"role":"assistant","content":"x",)") + given + "}]"),
              std::string(R"({"messages":[{"role":"assistant","content":"x")") + expected + "}]}");
  }
}

TEST(ConversationTest, ReadsTypedPartsOfReasoningAndToolCalls) {
  EXPECT_EQ(Messages(R"([{"role":"assistant","content":[{"type":"reasoning","value":"r"},{"type":"text","value":"t"},)"
                     R"({"type":"tool_call","value":"{\"name\":\"f\",\"arguments\":{\"a\":1}}"}]}])"),
            R"({"messages":[{"role":"assistant","content":"t","reasoning_content":"r",)"
            R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":1}}}]}]})");
}

TEST(ConversationTest, HashesContentAlone) {
  const auto hash_text = [](std::string_view row) {
    return ContentForHash(*CanonicalConversation(Json(row), RowForm::kAuto, true));
  };
  const std::string expected = R"({"messages":[{"content":"A","role":"assistant"}]})";
  EXPECT_EQ(hash_text(R"({"id":1,"messages":[{"role":"assistant","content":"A"}]})"), expected);
  EXPECT_EQ(hash_text(R"({"conversations":[{"from":"gpt","value":"A"}],"score":2})"), expected);
}

struct FieldCase {
  json::Value description;
  std::vector<std::string> lines;
};

FieldCase ReadFieldCase(const std::string& folder) {
  FieldCase result;
  std::stringstream text;
  text << std::ifstream(folder + "/case.json").rdbuf();
  result.description = Json(text.str());
  std::ifstream input(folder + "/input.jsonl");
  for (std::string line; std::getline(input, line);) result.lines.push_back(line);
  return result;
}

/// Every row of the collection that states what the template was given is read as exactly that.
TEST(ConversationTest, ReadsTheFieldCasesAsTheySay) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/text");
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!std::filesystem::exists(entry.path() / "input.jsonl")) continue;
    const FieldCase field_case = ReadFieldCase(entry.path().string());
    for (const json::Value& right : field_case.description.Find("right")->Find("rows")->as_array()) {
      const json::Value* messages = right.Find("as_messages");
      if (messages == nullptr || right.Find("take_messages") != nullptr) continue;
      const auto line = static_cast<std::size_t>(right.Find("line")->as_integer());
      RowRefusal refusal;
      const Result<json::Value> conversation =
          CanonicalConversation(Json(field_case.lines[line - 1]), RowForm::kAuto, true, &refusal);
      ASSERT_TRUE(conversation.ok()) << entry.path() << " line " << line << ": " << conversation.status().message();
      EXPECT_EQ(json::Write(*conversation->Find("messages")), json::Write(*messages))
          << entry.path() << " line " << line;
      if (const json::Value* tools = right.Find("as_tools")) {
        EXPECT_EQ(json::Write(*conversation->Find("tools")), json::Write(*tools)) << entry.path() << " line " << line;
      }
      ++checked;
    }
  }
  EXPECT_GE(checked, 8);
}

TEST(ConversationTest, RefusesTheShareGptRowsOfTheFieldCases) {
  DRAFTMILL_TEST_DATA_OR_SKIP(folder, "field_cases/text/sharegpt_variants");
  const FieldCase field_case = ReadFieldCase(folder);
  EXPECT_EQ(Canonical(field_case.lines[2]).substr(0, 12), "unknown_role");
  EXPECT_EQ(Canonical(field_case.lines[3]).substr(0, 17), "no_assistant_turn");
  EXPECT_EQ(Canonical(field_case.lines[4]).substr(0, 18), "empty_conversation");
}

}  // namespace
}  // namespace draftmill
