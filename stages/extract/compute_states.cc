// compute_states: ComputeStates as a program, for parity tests and benchmarks in Python. Prints its report as JSON.
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/json.h"
#include "stages/extract/states.h"

int main(int argc, char** argv) {
  draftmill::StatesRequest request;
  CLI::App app{"Computes hidden states of rows {\"input_ids\": [...]} into a safetensors file"};
  app.add_option("--model", request.options.model_folder)->required();
  app.add_option("--input", request.input_path)->required();
  app.add_option("--output", request.output_path)->required();
  app.add_option("--layers", request.options.layers)->delimiter(',');
  app.add_option("--dtype", request.options.dtype);
  app.add_option("--numerics", request.options.numerics);
  app.add_option("--threads", request.options.threads);
  app.add_option("--batch-tokens", request.batch_tokens);
  app.add_option("--block-tokens", request.block_tokens);
  CLI11_PARSE(app, argc, argv);
  const auto report = draftmill::ComputeStates(request, [] { return false; });
  if (!report.ok()) {
    std::fprintf(stderr, "compute_states: %s\n", report.status().ToString().c_str());
    return 1;
  }
  const draftmill::json::Object facts{{"rows", report->rows},
                                      {"tokens", report->tokens},
                                      {"quarantined", report->quarantined},
                                      {"load_seconds", report->load_seconds},
                                      {"extract_seconds", report->extract_seconds},
                                      {"numerics_environment", report->numerics_environment},
                                      {"weights_digest", report->weights_digest}};
  std::printf("%s\n", draftmill::json::Write(draftmill::json::Value(facts)).c_str());
  return 0;
}
