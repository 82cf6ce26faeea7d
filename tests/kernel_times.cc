// What a program's time on a GPU goes to: a library that the CUDA runtime loads into it.
//
//   g++ -std=c++20 -O2 -shared -fPIC -I/usr/local/cuda/include tests/kernel_times.cc -o kernel_times.so \
//     -L/usr/local/cuda/lib64 -lcupti
//   CUDA_INJECTION64_PATH=$PWD/kernel_times.so KERNEL_TIMES=times.txt draftmill bench extract MODEL --product-seconds 0
//   ...
//
// When the program ends, one line for each kernel with its share of the time from the first kernel to the last on the
// GPU with the lowest number, and the shares of: products, attention, draftmill's own kernels, other kernels, and gaps
// in which none ran; then the pairs of kernels between which most of the gaps lie. Beside each mean stands the longest, so
// that what happened once is not taken for what happens always. Kernels of one stream do not overlap, so the shares add up.
// The first quarter of the time is left out: libraries choose their kernels in it.
#include <cupti.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Run {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  const std::string* name = nullptr;
};

std::mutex mutex;
std::map<std::string, int>& Names() {
  static auto& names = *new std::map<std::string, int>;
  return names;
}
std::vector<Run>& Runs() {
  static auto& runs = *new std::vector<Run>;
  return runs;
}

void Request(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  *size = std::size_t{8} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *size));
  *most = 0;
}

void Complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    if (kernel->deviceId != 0) continue;
    Runs().push_back({kernel->start, kernel->end, &Names().try_emplace(kernel->name, 0).first->first});
  }
  std::free(buffer);
}

const char* KindOf(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("draftmill")) return "own kernels";
  if (has("flash") || has("fmha") || has("sdpa") || has("cudnn")) return "attention";
  if (has("gemm") || has("nvjet") || has("cutlass") || has("cublas")) return "products";
  return "other kernels";
}

/// Nanoseconds, how often, and how long once at most.
struct Time {
  double all = 0;
  long count = 0;
  double longest = 0;

  void Add(double time) {
    all += time;
    ++count;
    longest = std::max(longest, time);
  }
};

using Times = std::map<std::string, Time>;

std::string Shortened(const std::string& name) {
  const std::size_t own = name.rfind("_cu_");
  return name.substr(own == std::string::npos ? 0 : own, 50);
}

/// Those with most of `all`, at most `most` lines.
void Print(std::FILE* out, const Times& times, double all, std::size_t most) {
  std::vector<std::pair<double, std::string>> names;
  for (const auto& [name, time] : times) names.emplace_back(time.all, name);
  std::sort(names.rbegin(), names.rend());
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) {
    const Time& time = times.at(names[i].second);
    std::fprintf(out, "%6.2f %% %8ld x %9.1f us, at most %9.1f  %s\n", 100 * time.all / all, time.count,
                 time.all / static_cast<double>(time.count) * 1e-3, time.longest * 1e-3,
                 names[i].second.substr(0, 120).c_str());
  }
}

void Report() {
  cuptiActivityFlushAll(1);
  const std::lock_guard lock(mutex);
  std::vector<Run>& runs = Runs();
  const char* path = std::getenv("KERNEL_TIMES");
  std::FILE* out = path != nullptr ? std::fopen(path, "w") : stderr;
  if (out == nullptr || runs.empty()) return;
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
  const std::uint64_t from = runs.front().begin + (runs.back().end - runs.front().begin) / 4;
  std::erase_if(runs, [&](const Run& run) { return run.begin < from; });
  if (runs.empty()) return;
  std::map<std::string, double> by_kind;
  Times by_name;
  std::uint64_t covered = runs.front().begin;
  double gaps = 0;
  Times gaps_between;
  const std::string* before = runs.front().name;
  for (const Run& run : runs) {
    if (run.begin > covered) {
      const double gap = static_cast<double>(run.begin - covered);
      gaps += gap;
      gaps_between[Shortened(*before) + " -> " + Shortened(*run.name)].Add(gap);
    }
    before = run.name;
    covered = std::max(covered, run.end);
    const double time = static_cast<double>(run.end - run.begin);
    by_kind[KindOf(*run.name)] += time;
    by_name[*run.name].Add(time);
  }
  const double all = static_cast<double>(covered - runs.front().begin);
  by_kind["gaps"] = gaps;
  for (const auto& [kind, time] : by_kind) std::fprintf(out, "%-16s %6.2f %%\n", kind.c_str(), 100 * time / all);
  std::fprintf(out, "of %.2f s\n", all * 1e-9);
  Print(out, by_name, all, 30);
  std::fprintf(out, "gaps\n");
  Print(out, gaps_between, all, 12);
  if (out != stderr) std::fclose(out);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  cuptiActivityRegisterCallbacks(Request, Complete);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  std::atexit(Report);
  return 1;
}
