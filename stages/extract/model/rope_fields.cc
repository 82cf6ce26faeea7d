#include "stages/extract/model/rope_fields.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

namespace draftmill {
namespace {

constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;
constexpr double kMaxTheta = 1e12;

/// The part of rope_parameters that means this rotation; nullptr where there is none.
const json::Value* SectionOfParameters(ConfigFields& fields, const json::Value& parameters,
                                       const RopeDefaults& defaults) {
  if (!parameters.is_object()) return &parameters;
  bool by_layer_type = false;
  for (const json::Member& member : parameters.as_object()) by_layer_type |= member.second.is_object();
  if (by_layer_type && defaults.layer_type == nullptr) {
    fields.FailUnsupported("rope_parameters by layer type (" + parameters.as_object().front().first +
                           ") are not supported for this family");
    return nullptr;
  }
  // One rotation for all layers is not what a family with two of them means; its class passes over such a one.
  if (!by_layer_type && defaults.layer_type != nullptr && !parameters.as_object().empty()) {
    fields.FailUnsupported(std::string("rope_parameters must be given by layer type for this family (") +
                           defaults.layer_type + ", ...): it has two rotations");
    return nullptr;
  }
  return by_layer_type ? parameters.Find(defaults.layer_type) : &parameters;
}

bool SameValue(const json::Value& one, const json::Value& other) {
  if (one.is_number() && other.is_number()) return one.as_double() == other.as_double();
  return json::Write(one, json::Style::kCanonical) == json::Write(other, json::Style::kCanonical);
}

/// True where `section` states all that the old spelling states.
bool Restates(const json::Value& section, const json::Value& old) {
  if (!section.is_object() || !old.is_object()) return false;
  for (const auto& [name, value] : old.as_object()) {
    const json::Value* stated = section.Find(name);
    if (stated == nullptr && name == "type") stated = section.Find("rope_type");
    if (stated == nullptr ? !value.is_null() : !SameValue(*stated, value)) return false;
  }
  return true;
}

/// The object that holds the scaling, or nullptr where the rotation is plain.
const json::Value* FindSection(ConfigFields& fields, const RopeDefaults& defaults) {
  const json::Value* parameters = fields.Find("rope_parameters");
  const json::Value* old = defaults.scaled ? fields.Find("rope_scaling") : nullptr;
  const json::Value* section = parameters == nullptr ? old : SectionOfParameters(fields, *parameters, defaults);
  // Readers differ in which of two spellings they follow, and in what becomes of rope_theta.
  if (parameters != nullptr && old != nullptr && (section == nullptr || !Restates(*section, *old))) {
    fields.FailUnsupported(
        "rope_parameters and rope_scaling both describe the rotation, and not alike; keep the one that is meant (in "
        "rope_parameters rope_theta belongs to it)");
    return nullptr;
  }
  if (section == nullptr || section->is_null()) return nullptr;
  if (!section->is_object()) {
    fields.FailInput(std::string(parameters != nullptr ? "rope_parameters" : "rope_scaling") + " must be an object");
    return nullptr;
  }
  return section;
}

Result<RopeType> TypeOf(const std::string& name, const std::string& path) {
  for (const RopeType type :
       {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kYarn, RopeType::kLongRope}) {
    if (name == RopeTypeName(type)) return type;
  }
  if (name == "su") return RopeType::kLongRope;  // the name of longrope in the first Phi-3 files
  return Unsupported(path + ": the RoPE type " + name +
                     " is not supported (known: default, linear, llama3, yarn, longrope)");
}

/// The training length that a scaling is measured against: beside the section, in it, or the model's own limit. What
/// stands beside sections by layer type is not theirs.
std::int64_t OriginalPositions(ConfigFields& fields, ConfigFields& section, const RopeDefaults& defaults) {
  constexpr std::string_view kName = "original_max_position_embeddings";
  if (fields.Find(kName) != nullptr && defaults.layer_type == nullptr) return fields.Integer(kName, 2, kMaxPositions);
  if (defaults.original_positions != 0) {
    fields.NoteDefault(kName);
    return defaults.original_positions;
  }
  if (section.Find(kName) != nullptr) return section.Integer(kName, 2, kMaxPositions);
  return defaults.max_positions;
}

double FactorOr(ConfigFields& section, const RopeConfig& rope, const RopeDefaults& defaults) {
  if (section.Find("factor") != nullptr) return section.NumberOr("factor", 1e-6, 1e6, 1.0);
  return static_cast<double>(defaults.max_positions) / static_cast<double>(rope.original_max_positions);
}

void ReadLlama3(ConfigFields& section, RopeConfig& rope) {
  rope.low_freq_factor = section.NumberOr("low_freq_factor", 1e-6, 1e6, 1.0);
  rope.high_freq_factor = section.NumberOr("high_freq_factor", 1e-6, 1e6, 4.0);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    section.FailInput("high_freq_factor must be larger than low_freq_factor");
  }
}

/// A bound of yarn's ramp; 0 means the default, as in the published code.
double BetaOr(ConfigFields& section, std::string_view name, double fallback) {
  const double beta = section.NumberOr(name, 0.0, 1e6, fallback);
  return beta == 0 ? fallback : beta;
}

void ReadYarn(ConfigFields& section, const RopeDefaults& defaults, RopeFields& read) {
  RopeConfig& rope = read.rope;
  if (rope.theta <= 1) section.FailInput("yarn needs a rope_theta above 1");
  rope.factor = FactorOr(section, rope, defaults);
  rope.beta_fast = BetaOr(section, "beta_fast", 32.0);
  rope.beta_slow = BetaOr(section, "beta_slow", 1.0);
  rope.truncate = section.BoolOr("truncate", true);
  // The published code looks for it beside the sections, where no file has it, and servers look inside.
  if (!rope.truncate && defaults.layer_type != nullptr)
    section.FailUnsupported(
        "truncate: false is not supported by layer type; readers differ in whether it counts there");
  const double mscale = section.NumberOr("mscale", 0.0, 1e3, 0.0);
  const bool ratio = mscale != 0 && read.mscale_all_dim != 0;
  const double sharpening = ratio ? YarnMscale(rope.factor, mscale) / YarnMscale(rope.factor, read.mscale_all_dim)
                                  : YarnMscale(rope.factor, 1.0);
  rope.cos_sin_factor = section.NumberOr("attention_factor", 1e-6, 1e6, sharpening);
}

void ReadLongRope(ConfigFields& section, const RopeDefaults& defaults, RopeConfig& rope) {
  for (const std::string_view name : {"short_mscale", "long_mscale"}) {
    if (section.Find(name) != nullptr) section.FailUnsupported(std::string(name) + " is not supported");
  }
  rope.factor = FactorOr(section, rope, defaults);
  rope.short_factors = section.Numbers("short_factor", rope.rotary_dims / 2, 1e-6, 1e6);
  rope.long_factors = section.Numbers("long_factor", rope.rotary_dims / 2, 1e-6, 1e6);
  const double original = static_cast<double>(rope.original_max_positions);
  const double stretched = rope.factor <= 1 ? 1.0 : std::sqrt(1 + std::log(rope.factor) / std::log(original));
  rope.cos_sin_factor = section.NumberOr("attention_factor", 1e-6, 1e6, stretched);
}

/// The scaling's own parameters, as they stand in the file.
json::Value Stated(const json::Value& section) {
  json::Object stated;
  for (const auto& [name, value] : section.as_object()) {
    if (name == "type" || name == "rope_type" || name == "rope_theta" || name == "partial_rotary_factor" ||
        value.is_null())
      continue;
    if (value.is_array()) {
      stated.emplace_back(name + "_count", static_cast<std::int64_t>(value.as_array().size()));
    } else {
      stated.emplace_back(name, value);
    }
  }
  return stated;
}

void ReadScaling(ConfigFields& fields, const json::Value& object, const RopeDefaults& defaults, RopeFields& read) {
  ConfigFields section(object, fields.path() + ": RoPE");
  RopeConfig& rope = read.rope;
  const Result<RopeType> type = TypeOf(section.TextOr("rope_type", section.TextOr("type", "default")), fields.path());
  if (!type.ok()) return fields.Fail(type.status());
  const bool first_phi3 = defaults.yarn_is_longrope && section.Find("short_factor") != nullptr;
  rope.type = first_phi3 && *type == RopeType::kYarn ? RopeType::kLongRope : *type;
  if (rope.type == RopeType::kDefault) return fields.Fail(section.status());
  read.stated = Stated(object);
  read.mscale_all_dim = section.NumberOr("mscale_all_dim", 0.0, 1e3, 0.0);
  if (rope.type != RopeType::kLinear) rope.original_max_positions = OriginalPositions(fields, section, defaults);
  const bool needs_factor = rope.type == RopeType::kLinear || rope.type == RopeType::kLlama3;
  if (needs_factor && section.Find("factor") == nullptr) {
    return fields.FailInput("the RoPE type " + std::string(RopeTypeName(rope.type)) + " needs the field factor");
  }
  if (needs_factor) rope.factor = section.NumberOr("factor", 1e-6, 1e6, 1.0);
  if (rope.type == RopeType::kLlama3) ReadLlama3(section, rope);
  if (rope.type == RopeType::kYarn) ReadYarn(section, defaults, read);
  if (rope.type == RopeType::kLongRope) ReadLongRope(section, defaults, rope);
  fields.Fail(section.status());
}

double ReadTheta(ConfigFields& fields, const json::Value* section, const RopeDefaults& defaults) {
  const json::Value* theta = section == nullptr ? nullptr : section->Find("rope_theta");
  if (theta == nullptr || theta->is_null())
    return fields.NumberOr(defaults.theta_field, 1.0, kMaxTheta, defaults.theta);
  if (theta->is_number() && theta->as_double() >= 1.0 && theta->as_double() <= kMaxTheta) return theta->as_double();
  fields.FailInput("rope_theta must be a number between 1 and 1e12");
  return defaults.theta;
}

std::int64_t ReadRotaryDims(ConfigFields& fields, const json::Value* section, std::int64_t head_dim, bool partial) {
  const json::Value* inside = section == nullptr ? nullptr : section->Find("partial_rotary_factor");
  const double factor = inside != nullptr && inside->is_number() ? inside->as_double()
                        : fields.Find("partial_rotary_factor") == nullptr
                            ? 1.0
                            : fields.NumberOr("partial_rotary_factor", 0.0, 1.0, 1.0);
  if (!partial && factor != 1.0) fields.FailUnsupported("partial_rotary_factor is not supported for this family");
  const auto dims = static_cast<std::int64_t>(static_cast<double>(head_dim) * factor);
  if (dims < 2 || dims > head_dim || dims % 2 != 0) {
    fields.FailInput("partial_rotary_factor leaves " + std::to_string(dims) + " of " + std::to_string(head_dim) +
                     " dimensions of a head to rotate; an even number from 2 on is needed");
    return 2;
  }
  return dims;
}

}  // namespace

double YarnMscale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

RopeFields ReadRope(ConfigFields& fields, std::int64_t head_dim, const RopeDefaults& defaults) {
  RopeFields read;
  read.stated = json::Object{};
  const json::Value* section = FindSection(fields, defaults);
  read.rope.theta = ReadTheta(fields, section, defaults);
  read.rope.rotary_dims = ReadRotaryDims(fields, section, head_dim, defaults.partial);
  if (section != nullptr) ReadScaling(fields, *section, defaults, read);
  return read;
}

}  // namespace draftmill
