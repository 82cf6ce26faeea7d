// One YAML document as a tree with places, read so that nothing is guessed and nothing can grow.
//
//   yaml::Document document = yaml::ParseDocument(text);
//   if (!document.problems.empty()) ...   // every problem has line and column
//
// Stands between yaml-cpp and the configuration: all of its exceptions end here. Refused are: duplicate keys, keys that
// are no plain text, tags, a second document, aliases that stand inside what they name, broken UTF-8, and whatever
// exceeds the limits below (aliases count as if written out). Pure function, safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace draftmill::yaml {

inline constexpr std::size_t kMaxDocumentBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxDepth = 32;
/// Of all nodes together with aliases written out; a node counts 64 bytes and its text.
inline constexpr std::size_t kMaxTreeBytes = std::size_t{16} << 20;

/// Where something stands, both from 1; 0 where it stands nowhere.
struct Place {
  int line = 0;
  int column = 0;
};

/// Something wrong with a document, for people.
struct Problem {
  Place place;
  std::string message;
};

enum class Kind { kNull, kScalar, kSequence, kMapping };

struct Member;

struct Node {
  Kind kind = Kind::kNull;
  Place place;
  bool quoted = false;          ///< a scalar in quotes or a block scalar: always text
  std::string text;             ///< of a scalar; of null as "null"
  std::vector<Node> items;      ///< of a sequence
  std::vector<Member> members;  ///< of a mapping, in the order of the file
};

struct Member {
  std::string key;
  Place place;
  Node value;
};

struct Document {
  Node root;  ///< null for an empty document
  std::vector<Problem> problems;
};

/// Reads exactly one document.
Document ParseDocument(std::string_view text);

}  // namespace draftmill::yaml
