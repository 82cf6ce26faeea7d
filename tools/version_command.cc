// draftmill version
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/command.h"

namespace draftmill {
namespace {

#if defined(DRAFTMILL_WITH_CUDA)
constexpr std::string_view kEngine = "cpu, cuda";
#elif defined(DRAFTMILL_WITH_TORCH)
constexpr std::string_view kEngine = "cpu";
#else
constexpr std::string_view kEngine = "none (text build)";
#endif

}  // namespace

void AddVersionCommand(CLI::App& app, CommandOutcome& /*outcome*/) {
  CLI::App* version = app.add_subcommand("version", "Print the version and what is built in");
  auto json_wanted = std::make_shared<bool>(false);
  version->add_flag("--json", *json_wanted, "Print JSON");
  version->callback([json_wanted] {
    if (*json_wanted) {
      PrintJson(json::Object{{"version", ProgramVersion()}, {"engine", kEngine}, {"compiler", __VERSION__}});
    } else {
      PrintData("draftmill " + std::string(ProgramVersion()) + ", engine: " + std::string(kEngine));
    }
  });
}

}  // namespace draftmill
