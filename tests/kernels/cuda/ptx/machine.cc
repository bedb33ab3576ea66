#include "tests/kernels/cuda/ptx/machine.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace tessera::ptx {

Machine& Machine::Get() {
  // Programs use it while they end.
  static Machine* const machine = [] {
    auto* const made = new Machine;
    std::atexit([] { Get().Report(); });
    return made;
  }();
  return *machine;
}

void Machine::Report() const {
  std::string text =
      "products " + std::to_string(products) + "\ngraphs " + std::to_string(graphs) + "\n";
  std::string missing;
  size_t all = 0, reached = 0;
  for (const auto& [name, entry] : entries) {
    const auto found = kernels.find(&entry);
    const size_t count = entry.code.size() - 1;  // The last is the end.
    all += count;
    if (found == kernels.end()) {
      missing += " " + name;
      continue;
    }
    const Kernel& kernel = found->second;
    text += name + " launches " + std::to_string(kernel.usage.launches) + " issued " +
            std::to_string(kernel.issued) + " loaded " + std::to_string(kernel.loaded) +
            " stored " + std::to_string(kernel.stored) + " unreached";
    for (size_t i = 0; i < count; ++i) {
      if (kernel.usage.times[i] != 0) {
        ++reached;
      } else {
        text += " " + std::to_string(entry.code[i].line);
      }
    }
    text += "\n";
  }
  if (const char* const path = std::getenv("TESSERA_PTX_REPORT");
      path != nullptr && !kernels.empty()) {
    std::FILE* const file = std::fopen(path, "a");
    if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file) != text.size()) {
      Refuse(std::string("cannot write ") + path);
    }
    std::fclose(file);
  }
  if (const char* const share = std::getenv("TESSERA_PTX_REACH"); share != nullptr) {
    if (!missing.empty()) Refuse("kernels that were never launched:" + missing);
    if (100 * reached < all * std::strtoull(share, nullptr, 10)) {
      Refuse(std::to_string(reached) + " of " + std::to_string(all) +
             " instructions were reached, want " + share +
             " percent; TESSERA_PTX_REPORT=FILE writes down which were not");
    }
  }
}

void Machine::Launch(const Grid& grid) {
  Kernel& kernel = kernels[grid.entry];
  Usage& usage = kernel.usage;
  const int64_t issued = usage.Issued(*grid.entry), loaded = usage.loaded, stored = usage.stored;
  RunGrid(grid, &memory, &usage);
  const int64_t here = usage.Issued(*grid.entry) - issued;
  if (here <= kernel.issued) return;
  kernel.issued = here;
  kernel.loaded = usage.loaded - loaded;
  kernel.stored = usage.stored - stored;
}

void Machine::Run(const Work& wait) {
  try {
    wait();
  } catch (const std::runtime_error& error) {
    Refuse(error.what());
  }
}

void Machine::Refuse(const std::string& what) {
  std::fprintf(stderr, "PTX machine: %s\n", what.c_str());
  std::abort();
}

void Machine::Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) Refuse(std::string(what) + ": CUDA's error " + std::to_string(error));
}

bool Machine::IsPinned(const void* address, int64_t bytes) const {
  const auto* const begin = static_cast<const char*>(address);
  auto found = pinned.upper_bound(begin);
  if (found == pinned.begin()) return false;
  --found;
  return begin + bytes <= found->first + found->second;
}

void Machine::Touch(const void* address, int64_t bytes, bool writes, const char* what) {
  const int64_t offset = memory.OffsetOf(address);
  const char* wrong = memory.shadow().Check(offset, bytes, writes);
  if (wrong == nullptr) wrong = memory.Follow(offset, bytes, writes);
  if (wrong != nullptr) {
    Refuse(std::string(what) + (writes ? " writes " : " reads ") + std::to_string(bytes) +
           " bytes of which some " + wrong);
  }
  if (writes) memory.shadow().Set(offset, bytes, Shadow::kWritten);
}

}  // namespace tessera::ptx
