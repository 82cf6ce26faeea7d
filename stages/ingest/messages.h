// Checks and normalises the messages and tools of one conversation: the part of stages/ingest/conversation.h that is
// the same for every form of row. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "stages/ingest/conversation.h"

namespace draftmill {

/// The start of a text from outside for a message of ours: at most 40 bytes, cut between characters.
std::string Shortened(std::string_view text);

/// Checks every message (role, content, tool calls, weight) and, where asked, normalises it in place.
Status CheckMessages(json::Array& messages, bool normalize, RowRefusal& refusal);

/// A turn {from, value} as a message. The speakers are those of the files in the field; an unknown one is refused.
Result<json::Value> MessageFromTurn(json::Value turn, RowRefusal& refusal);

/// Checks `tools`: a list of objects, or such a list or such objects as JSON in a text, which become what they say. With `wrap_bare`, a bare function
/// description {name, ...} becomes {"type": "function", "function": {...}}, the form that chat templates expect.
Status CheckTools(json::Value& tools, bool wrap_bare, RowRefusal& refusal);

}  // namespace draftmill
