// mutated_states: `draftmill states` with a known mistake put back, for tests/oracle/traps_oracle.py. Each mistake is
// one that other engines made with these models; a test of the right states is worth something only if it sees them.
//
//   mutated_states --mutation NAME --model DIR --input ROWS.jsonl --output FILE.safetensors [--layers ...] [--dtype
//   ...]
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "stages/extract/cpu/cpu_extractor.h"
#include "stages/extract/states.h"

namespace draftmill {
namespace {

const std::map<std::string, std::function<void(ModelConfig&)>>& Mutations() {
  static const std::map<std::string, std::function<void(ModelConfig&)>> mutations = {
      {"none", [](ModelConfig&) {}},
      {"embedding_unscaled", [](ModelConfig& config) { config.embedding_scale = 1.0; }},
      {"window_one_more", [](ModelConfig& config) { config.sliding_window += 1; }},
      {"window_on_every_layer",
       [](ModelConfig& config) {
         config.sliding_layers.clear();
         for (std::int64_t i = 0; i < config.num_layers; ++i)
           config.sliding_layers.push_back(static_cast<std::int32_t>(i));
       }},
      {"scale_from_hidden_size",
       [](ModelConfig& config) {
         config.softmax_scale =
             std::sqrt(static_cast<double>(config.num_heads) / static_cast<double>(config.hidden_size));
       }},
      {"scale_from_head_dim",
       [](ModelConfig& config) { config.softmax_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim)); }},
      {"norm_weight_in_other_type",
       [](ModelConfig& config) { config.norm_multiplies_in_float = !config.norm_multiplies_in_float; }},
      {"latent_eps_from_config", [](ModelConfig& config) { config.latent->latent_norm_eps = config.norm_eps; }},
      {"yarn_truncated", [](ModelConfig& config) { config.rope.truncate = !config.rope.truncate; }},
      {"cos_sin_unscaled", [](ModelConfig& config) { config.rope.cos_sin_factor = 1.0; }},
      {"pairs_as_halves", [](ModelConfig& config) { config.rope.interleaved = !config.rope.interleaved; }},
      {"rotates_whole_heads", [](ModelConfig& config) { config.rope.rotary_dims = config.head_dim; }},
      {"longrope_by_batch", [](ModelConfig& config) { config.rope.short_factors = config.rope.long_factors; }},
      {"local_rope_ignored", [](ModelConfig& config) { config.local_rope.reset(); }},
      {"default_theta", [](ModelConfig& config) { config.rope.theta = 10000.0; }},
      {"sinks_ignored", [](ModelConfig& config) { config.attention_sinks = false; }},
      {"softcap_ignored", [](ModelConfig& config) { config.attention_softcap = 0; }},
      {"swiglu_unclamped", [](ModelConfig& config) { config.swiglu_limit = 1e30; }},
      {"norm_plain_weight", [](ModelConfig& config) { config.norm_one_plus = false; }},
      {"router_without_groups", [](ModelConfig& config) { config.experts->groups = config.experts->groups_kept = 1; }},
      {"router_unscaled", [](ModelConfig& config) { config.experts->scaling = 1.0; }},
      {"router_renormalised", [](ModelConfig& config) { config.experts->renormalise = !config.experts->renormalise; }},
      {"softmax_over_chosen",
       [](ModelConfig& config) {
         RouterScoring& scoring = config.experts->scoring;
         scoring = scoring == RouterScoring::kSoftmax ? RouterScoring::kSoftmaxChosen : RouterScoring::kSoftmax;
         config.experts->renormalise = false;  // shares of all, renormalised, are shares of the chosen again
       }},
  };
  return mutations;
}

int Run(const StatesRequest& request, const std::string& mutation) {
  Result<ModelFolder> model = OpenModelFolder(request.options.model_folder, request.options.layers);
  if (!model.ok()) return std::fprintf(stderr, "%s\n", model.status().ToString().c_str()), 1;
  Mutations().at(mutation)(model->config);
  const Result<std::unique_ptr<Extractor>> extractor = MakeCpuExtractor(std::move(*model), request.options);
  if (!extractor.ok()) return std::fprintf(stderr, "%s\n", extractor.status().ToString().c_str()), 1;
  const Result<StatesReport> report = ComputeStates(request, **extractor, [] { return false; });
  if (!report.ok()) return std::fprintf(stderr, "%s\n", report.status().ToString().c_str()), 1;
  return 0;
}

}  // namespace
}  // namespace draftmill

int main(int argc, char** argv) {
  draftmill::StatesRequest request;
  std::string mutation;
  CLI::App app{"States with a known mistake put back"};
  app.add_option("--mutation", mutation)->required()->check(CLI::IsMember(draftmill::Mutations()));
  app.add_option("--model", request.options.model_folder)->required();
  app.add_option("--input", request.input_path)->required();
  app.add_option("--output", request.output_path)->required();
  app.add_option("--layers", request.options.layers)->delimiter(',');
  app.add_option("--dtype", request.options.dtype);
  CLI11_PARSE(app, argc, argv);
  return draftmill::Run(request, mutation);
}
