// Runs a fuzz target without a fuzzer: every input of its corpus, then seeded mutations of them. What a fuzzer once
// found stays fixed in this way, and something is tried in every test run with any compiler.
//
//   X_fuzz_test FILE... [--seconds=S] [--mutations=N] [--seed=K]
//
// FILE is a corpus (TARGET.inputs, in the form that corpus.py describes) or a single input. The program ends with the
// first input that ends the process, and says how to run that one again.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// A target may have it: called once.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) __attribute__((weak));

namespace {

constexpr size_t kInputBytesMax = 64 << 10;
// Of address space beyond what the process has at its begin: an input that asks for more ends it. The
// address sanitizer reserves terabytes and has a limit of its own.
constexpr rlim_t kMemoryMax = rlim_t{4} << 30;

using Bytes = std::vector<uint8_t>;

char running[512] = "";

void SayWhich(int signal) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, running, std::strlen(running));
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void Run(const Bytes& input, const std::string& which) {
  std::snprintf(running, sizeof(running), "\nfuzz: input is %s\n", which.c_str());
  // In memory of exactly its size, so that a read beyond the end is found.
  const auto copy = std::make_unique<uint8_t[]>(input.size());
  std::copy(input.begin(), input.end(), copy.get());
  LLVMFuzzerTestOneInput(copy.get(), input.size());
}

struct Input {
  std::string name;
  Bytes bytes;
};

// Appends the inputs of `path`: the lines of a corpus, or the file as one input.
void ReadInputs(const std::filesystem::path& path, std::vector<Input>* inputs) {
  std::ifstream file(path, std::ios::binary);
  if (path.extension() != ".inputs") {
    inputs->push_back({path.string(), Bytes(std::istreambuf_iterator<char>(file), {})});
    return;
  }
  for (std::string line; std::getline(file, line);) {
    const size_t blank = line.find(' ');
    std::string bytes;
    if (blank == std::string::npos || !absl::Base64Unescape(line.substr(blank + 1), &bytes)) {
      std::fprintf(stderr, "fuzz: %s: line %zu is not a name and base64\n", path.c_str(),
                   inputs->size() + 1);
      std::exit(2);
    }
    inputs->push_back(
        {path.string() + ": " + line.substr(0, blank), Bytes(bytes.begin(), bytes.end())});
  }
}

// A few edits of one input; some take bytes of another.
Bytes Mutated(const std::vector<Input>& corpus, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t end) { return end == 0 ? 0 : static_cast<size_t>(random() % end); };
  Bytes input = corpus[below(corpus.size())].bytes;
  for (size_t edits = 1 + below(8); edits > 0; --edits) {
    const size_t at = below(input.size() + 1);
    const size_t length = std::min(input.size() - at, 1 + below(16));
    switch (below(7)) {
      case 0:
        if (at < input.size()) input[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<uint8_t>(below(256));
        break;
      case 2:
        input.erase(input.begin() + at, input.begin() + at + length);
        break;
      case 3:
        input.insert(input.begin() + at, length, static_cast<uint8_t>(below(256)));
        break;
      case 4: {
        const Bytes& other = corpus[below(corpus.size())].bytes;
        const size_t from = below(other.size());
        const size_t count = std::min(other.size() - from, 1 + below(64));
        if (other.empty()) break;
        input.insert(input.begin() + at, other.begin() + from, other.begin() + from + count);
        break;
      }
      case 5: {
        // Numbers at which things overflow.
        static const uint64_t kEdges[] = {0,
                                          1,
                                          0x7f,
                                          0x80,
                                          0xff,
                                          0x7fff,
                                          0xffff,
                                          0x7fffffff,
                                          0x80000000,
                                          0xffffffff,
                                          ~uint64_t{0} >> 1,
                                          ~uint64_t{0}};
        const uint64_t edge = kEdges[below(std::size(kEdges))];
        const size_t size = size_t{1} << below(4);
        if (at + size <= input.size()) std::memcpy(&input[at], &edge, size);
        break;
      }
      case 6:
        input.resize(at);
        break;
    }
  }
  if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
  return input;
}

bool TakeFlag(const char* argument, const char* name, uint64_t* value) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0) return false;
  *value = std::strtoull(argument + length, nullptr, 10);
  return true;
}

void LimitAddresses() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
  const rlimit limit{kMemoryMax, kMemoryMax};
  setrlimit(RLIMIT_AS, &limit);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seconds = 3, mutations = 20000, seed = 0;
  std::vector<Input> corpus;
  for (int i = 1; i < argc; ++i) {
    if (TakeFlag(argv[i], "--seconds=", &seconds) || TakeFlag(argv[i], "--seed=", &seed) ||
        TakeFlag(argv[i], "--mutations=", &mutations)) {
      continue;
    }
    ReadInputs(argv[i], &corpus);
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "fuzz: no inputs, want a corpus or files\n");
    return 2;
  }
  LimitAddresses();
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, SayWhich);
  if (LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  if (seed != 0) {
    Run(Mutated(corpus, seed), "of this seed");
    return 0;
  }
  for (const Input& input : corpus) Run(input.bytes, input.name);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  uint64_t tried = 0;
  while (tried < mutations && std::chrono::steady_clock::now() < end) {
    ++tried;
    Run(Mutated(corpus, tried),
        "a mutation of the corpus; run it again with --seed=" + std::to_string(tried));
  }
  std::printf("fuzz: %zu inputs, %llu mutations\n", corpus.size(),
              static_cast<unsigned long long>(tried));
  return 0;
}
