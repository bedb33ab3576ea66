#include "common/base/compute_environment.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tessera {
namespace {

// The variable that marks a process which was started anew, so that it is not started for ever: what is preloaded
// may put a variable back each time.
constexpr char kStartedAnew[] = "TESSERA_STARTED_ANEW";
constexpr absl::string_view kSpinCount = "GOMP_SPINCOUNT";
constexpr absl::string_view kWaitPolicy = "OMP_WAIT_POLICY";
// How the variables of GNU's, Intel's and LLVM's OpenMP begin.
constexpr absl::string_view kOpenMp[] = {"OMP_", "GOMP_", "KMP_"};
// How the variables of oneDNN begin, which knows each of them by two names.
constexpr absl::string_view kDnnl[] = {"DNNL_", "ONEDNN_"};
constexpr absl::string_view kDnnlChanges[] = {"DEFAULT_FPMATH_MODE", "CPU_ISA_HINTS"};
constexpr absl::string_view kNvidia[] = {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION",
                                         "CUBLAS_EMULATION_STRATEGY"};

absl::string_view NameOf(absl::string_view variable) {
  return variable.substr(0, variable.find('='));
}

// Whether a variable of this name may change what is computed: all of OpenMP's but for how threads wait, and those
// of oneDNN and NVIDIA's libraries that choose a precision.
bool ChangesResults(absl::string_view name) {
  if (name == kSpinCount || name == kWaitPolicy) return false;
  for (const absl::string_view library : kOpenMp) {
    if (absl::StartsWith(name, library)) return true;
  }
  for (const absl::string_view library : kDnnl) {
    for (const absl::string_view what : kDnnlChanges) {
      if (name == absl::StrCat(library, what)) return true;
    }
  }
  return std::find(std::begin(kNvidia), std::end(kNvidia), name) != std::end(kNvidia);
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> own;
  for (char** variable = environ; *variable != nullptr; ++variable) own.push_back(*variable);
  return own;
}

}  // namespace

std::vector<std::string> ComputeEnvironment(const std::vector<std::string>& given) {
  std::vector<std::string> wanted;
  bool says_how_to_wait = false;
  for (const std::string& variable : given) {
    const absl::string_view name = NameOf(variable);
    if (ChangesResults(name)) continue;
    says_how_to_wait = says_how_to_wait || name == kSpinCount || name == kWaitPolicy;
    wanted.push_back(variable);
  }
  // OpenMP's default lets idle threads spin for milliseconds, in which other workers on the machine want the cores.
  if (!says_how_to_wait) wanted.push_back(absl::StrCat(kSpinCount, "=1000"));
  return wanted;
}

std::vector<std::string> AddedComputeVariables() {
  const std::vector<std::string> own = OwnEnvironment();
  std::vector<std::string> added = ComputeEnvironment(own);
  const auto is_own = [&own](const std::string& variable) {
    return std::find(own.begin(), own.end(), variable) != own.end();
  };
  added.erase(std::remove_if(added.begin(), added.end(), is_own), added.end());
  return added;
}

void StartInComputeEnvironment(char** argv) {
  const std::vector<std::string> given = OwnEnvironment();
  std::vector<std::string> wanted = ComputeEnvironment(given);
  if (wanted == given) return;
  // execve keeps the process's id, so the mark names this process; a child that inherits it has another id.
  const std::string own = absl::StrCat(getpid());
  const char* const started = getenv(kStartedAnew);
  if (started != nullptr && started == own) return;
  // A program that was started by hand through the loader is left alone: the loader would be started in its place.
  if (getauxval(AT_BASE) == 0) return;
  // The program is started by its own path and not through /proc, so that the process keeps its name.
  char program[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
  if (size <= 0) return;
  // Whatever preloaded code or a wrapper put there, the mark appears once.
  program[size] = '\0';
  const auto is_mark = [](const std::string& variable) { return NameOf(variable) == kStartedAnew; };
  wanted.erase(std::remove_if(wanted.begin(), wanted.end(), is_mark), wanted.end());
  wanted.push_back(absl::StrCat(kStartedAnew, "=", own));
  std::vector<char*> pointers;
  for (std::string& variable : wanted) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  // execve returns only where it failed; the program then computes with the environment it has.
  execve(program, argv, pointers.data());
}

}  // namespace tessera
