#include "stages/extract/device/device_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>

namespace draftmill {
namespace {

std::string Describe(const GpuProcess& process) {
  std::string text = "process " + std::to_string(process.pid);
  text += process.command.empty() ? " (not visible from here)" : " (" + process.command + ")";
  if (process.bytes >= 0) text += " holds " + GibibytesText(process.bytes);
  return text;
}

}  // namespace

std::string GibibytesText(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

DeviceClaim::DeviceClaim(DeviceClaim&& other) noexcept : locks_(std::exchange(other.locks_, {})) {}

DeviceClaim& DeviceClaim::operator=(DeviceClaim&& other) noexcept {
  std::swap(locks_, other.locks_);
  return *this;
}

DeviceClaim::~DeviceClaim() {
  for (const int lock : locks_) ::close(lock);
}

/// One attempt after the other.
class Claimer {
 public:
  Claimer(const ClaimRequest& request, GpuReader& gpus) : request_(request), gpus_(gpus) {}

  Result<DeviceClaim> Claim() {
    std::string told;
    for (;;) {
      DeviceClaim claim;
      DRAFTMILL_ASSIGN_OR_RETURN(const std::string occupants, Try(claim));
      if (occupants.empty()) return claim;
      if (request_.when_occupied == WhenOccupied::kFail) {
        return Conflict(occupants +
                        ". Nothing was started. End what computes there, choose other GPUs with "
                        "CUDA_VISIBLE_DEVICES, or set extract.occupied to wait");
      }
      if (occupants != told && request_.say) request_.say("waiting for GPUs: " + occupants);
      told = occupants;
      if (Stopped()) return Cancelled("stopped while waiting for GPUs; nothing was started");
    }
  }

 private:
  /// Takes the locks and names who is there; nobody: the empty text.
  Result<std::string> Try(DeviceClaim& claim) const {
    std::string occupants;
    for (const std::string& bus_id : request_.bus_ids) {
      DRAFTMILL_ASSIGN_OR_RETURN(const GpuReading gpu, gpus_.Read(bus_id));
      const bool locked = Lock(gpu, claim);
      std::string here;
      for (const GpuProcess& process : gpu.processes) {
        if (process.pid == ::getpid()) continue;
        here += (here.empty() ? "" : ", ") + Describe(process);
      }
      if (here.empty() && !locked) here = "another draftmill has claimed it and is about to start";
      if (here.empty()) continue;
      if (!occupants.empty()) occupants += "; ";
      occupants += gpu.name + " at " + bus_id + " is occupied: " + here + "; " + GibibytesText(gpu.free_bytes) +
                   " of " + GibibytesText(gpu.total_bytes) + " are free";
    }
    return occupants;
  }

  /// False where another process holds the lock. A GPU whose device file cannot be opened is claimed by no lock.
  bool Lock(const GpuReading& gpu, DeviceClaim& claim) const {
    if (gpu.minor < 0) return true;
    const std::string path = request_.device_files + std::to_string(gpu.minor);
    const int lock = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (lock < 0) return true;
    if (::flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(lock);
      return false;
    }
    claim.locks_.push_back(lock);
    return true;
  }

  /// Waits until the next attempt.
  bool Stopped() const {
    constexpr auto kSlice = std::chrono::milliseconds(100);
    for (auto waited = std::chrono::milliseconds(0); waited < request_.poll; waited += kSlice) {
      if (request_.should_stop && request_.should_stop()) return true;
      std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(kSlice, request_.poll));
    }
    return request_.should_stop && request_.should_stop();
  }

  const ClaimRequest& request_;
  GpuReader& gpus_;
};

Result<DeviceClaim> ClaimDevices(const ClaimRequest& request, GpuReader& gpus) {
  return Claimer(request, gpus).Claim();
}

}  // namespace draftmill
