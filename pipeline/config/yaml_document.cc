#include "pipeline/config/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "base/utf8.h"

namespace draftmill::yaml {
namespace {

Place PlaceOf(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

/// yaml-cpp's exception is the one way to leave its parser early; ParseDocument catches it.
[[noreturn]] void Refuse(const YAML::Mark& mark, const std::string& message) {
  throw YAML::ParserException(mark, message);
}

/// Builds the tree from the parser's events and keeps to the limits while it does.
class TreeBuilder : public YAML::EventHandler {
 public:
  Document TakeDocument() { return std::move(document_); }

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node node;
    node.place = PlaceOf(mark);
    node.text = "null";
    Accept(mark, std::move(node), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    // yaml-cpp gives "?" to a plain scalar and "!" to any other that has no tag of its own.
    if (tag != "?" && tag != "!" && !tag.empty()) Refuse(mark, "tags such as `" + tag + "` are not allowed");
    Node node;
    node.kind = Kind::kScalar;
    node.place = PlaceOf(mark);
    node.quoted = tag == "!";
    node.text = text;
    Accept(mark, std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto named = anchors_.find(anchor);
    if (named == anchors_.end()) Refuse(mark, "an alias stands inside what it names");
    if (open_.size() + named->second.depth > kMaxDepth) Refuse(mark, "nested too deeply");
    Charge(mark, named->second.bytes);
    if (!open_.empty()) open_.back().depth = std::max(open_.back().depth, named->second.depth + 1);
    Node node = named->second.node;
    Attach(mark, std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(mark, Kind::kSequence, tag, anchor);
  }
  void OnSequenceEnd() override { CloseInnermost(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(mark, Kind::kMapping, tag, anchor);
  }
  void OnMapEnd() override { CloseInnermost(); }

 private:
  struct OpenNode {
    Node node;
    YAML::Mark mark;
    YAML::anchor_t anchor = 0;
    bool has_key = false;  // a key was read and waits for its value
    std::string key;
    Place key_place;
    std::map<std::string, int> key_lines;
    std::size_t bytes_before = 0;
    std::size_t depth = 1;  // of what is inside, with the node itself
  };
  struct Anchored {
    Node node;
    std::size_t bytes = 0;
    std::size_t depth = 0;
  };

  void Charge(const YAML::Mark& mark, std::size_t bytes) {
    tree_bytes_ += bytes;
    if (tree_bytes_ > kMaxTreeBytes) Refuse(mark, "the document is too large with its aliases written out");
  }

  void Accept(const YAML::Mark& mark, Node node, YAML::anchor_t anchor) {
    const std::size_t bytes = 64 + node.text.size();
    Charge(mark, bytes);
    if (anchor != 0) anchors_[anchor] = {node, bytes, 0};
    Attach(mark, std::move(node));
  }

  void Open(const YAML::Mark& mark, Kind kind, const std::string& tag, YAML::anchor_t anchor) {
    if (tag != "?" && !tag.empty()) Refuse(mark, "tags such as `" + tag + "` are not allowed");
    if (open_.size() >= kMaxDepth) Refuse(mark, "nested too deeply");
    OpenNode open;
    open.node.kind = kind;
    open.node.place = PlaceOf(mark);
    open.mark = mark;
    open.anchor = anchor;
    open.bytes_before = tree_bytes_;
    open_.push_back(std::move(open));
    Charge(mark, 64);
  }

  void CloseInnermost() {
    OpenNode closed = std::move(open_.back());
    open_.pop_back();
    if (!open_.empty()) open_.back().depth = std::max(open_.back().depth, closed.depth + 1);
    if (closed.anchor != 0) anchors_[closed.anchor] = {closed.node, tree_bytes_ - closed.bytes_before, closed.depth};
    Attach(closed.mark, std::move(closed.node));
  }

  void Attach(const YAML::Mark& mark, Node node) {
    if (open_.empty()) {
      document_.root = std::move(node);
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.kind == Kind::kSequence) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      TakeKey(mark, parent, std::move(node));
    } else {
      TakeValue(parent, std::move(node));
    }
  }

  static void TakeKey(const YAML::Mark& mark, OpenNode& parent, Node node) {
    if (node.kind != Kind::kScalar && node.kind != Kind::kNull) Refuse(mark, "a key must be text");
    parent.has_key = true;
    parent.key = std::move(node.text);
    parent.key_place = PlaceOf(mark);
  }

  void TakeValue(OpenNode& parent, Node node) {
    parent.has_key = false;
    const auto [first, is_new] = parent.key_lines.emplace(parent.key, parent.key_place.line);
    if (!is_new) {
      document_.problems.push_back({parent.key_place, "key `" + parent.key + "` stands here twice (first in line " +
                                                          std::to_string(first->second) + ")"});
      return;
    }
    parent.node.members.push_back({std::move(parent.key), parent.key_place, std::move(node)});
  }

  std::vector<OpenNode> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t tree_bytes_ = 0;
  Document document_;
};

/// Takes no further document: its first event says that there is one.
class RefuseSecondDocument : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    Refuse(mark, "a second YAML document starts here; a pipeline is one document");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*text*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}
};

/// The place of the first byte that is not valid UTF-8 or is a NUL, or line 0 where there is none.
Place FirstBadByte(std::string_view text) {
  const std::string_view good = text.substr(0, std::min(ValidUtf8Length(text), text.find('\0')));
  if (good.size() == text.size()) return {};
  const auto line = 1 + std::count(good.begin(), good.end(), '\n');
  const std::size_t line_start = good.rfind('\n') + 1;  // npos + 1 is 0
  return {static_cast<int>(line), static_cast<int>(good.size() - line_start + 1)};
}

}  // namespace

Document ParseDocument(std::string_view text) {
  Document document;
  if (text.size() > kMaxDocumentBytes) {
    document.problems.push_back(
        {{1, 1}, "the file has " + std::to_string(text.size()) + " bytes; a pipeline file has at most 1 MiB"});
    return document;
  }
  if (const Place bad = FirstBadByte(text); bad.line > 0) {
    document.problems.push_back({bad, "the file is not UTF-8 text"});
    return document;
  }
  TreeBuilder builder;
  std::vector<Problem> fatal;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      RefuseSecondDocument refuse;
      parser.HandleNextDocument(refuse);
    }
  } catch (const YAML::Exception& error) {
    const Place place = error.mark.is_null() ? Place{1, 1} : PlaceOf(error.mark);
    fatal.push_back({place, error.msg});
  } catch (const std::exception& error) {
    fatal.push_back({{1, 1}, std::string("not readable as YAML: ") + error.what()});
  }
  document = builder.TakeDocument();
  document.problems.insert(document.problems.end(), fatal.begin(), fatal.end());
  return document;
}

}  // namespace draftmill::yaml
