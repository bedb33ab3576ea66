#include "deploy/cli/fetch_advice.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/config/job_paths.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr char kScript[] = "fetch_data.sh";
// Where the script lies beside the folder of all sets, in the tree and in a bundle, and where a package has it.
constexpr char kPackagedFolder[] = "/usr/share/tessera";
constexpr const char* kScriptFolders[] = {"deploy", "tessera", ".", kPackagedFolder};

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool LacksFiles(const v1::Data& data) {
  for (const v1::DataFiles* files : {&data.train(), &data.test()}) {
    for (const auto* names : {&files->features(), &files->labels()}) {
      for (const std::string& name : *names) {
        if (!name.empty() && !IsThere(DataPath(data, name))) return true;
      }
    }
  }
  return false;
}

}  // namespace

std::vector<FetchedSet> FetchedSets() {
  return {{"a9a", true},           {"cifar10", false}, {"delicious", false},  {"eurlex", false},
          {"fashion_mnist", true}, {"mnist", true},    {"shakespeare", true}, {"speech", false}};
}

std::string FetchAdvice(const v1::Job& job) {
  const v1::Data& data = job.data();
  if (!LacksFiles(data)) return "";
  fs::path folder = fs::path(data.directory()).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const std::vector<FetchedSet> sets = FetchedSets();
  const std::string name = folder.filename().string();
  const auto set = std::find_if(sets.begin(), sets.end(),
                                [&name](const FetchedSet& each) { return each.name == name; });
  if (set == sets.end()) return "";
  const fs::path parent = folder.parent_path();
  std::string script, place;
  for (const char* const beside : kScriptFolders) {
    const fs::path path = (parent.parent_path() / beside / kScript).lexically_normal();
    if (script.empty() && IsThere(path.string())) script = path.string();
  }
  // The script's own choice of a place is the folder "data" beside the one that it lies in. A package's script serves
  // jobs that lie anywhere.
  const bool is_packaged = fs::path(script).parent_path() == kPackagedFolder;
  if (script.empty() || is_packaged || parent.filename() != "data") {
    place = absl::StrCat("--to ", parent.empty() ? "." : parent.string(), " ");
  }
  if (script.empty()) script = absl::StrCat("deploy/", kScript);
  return absl::StrCat("get it with: ", script, " ", place, set->is_public ? "" : "--from DIR ",
                      name,
                      set->is_public ? ""
                                     : " (it has no public address in this form; without "
                                       "--from the script says where it comes from)");
}

void TellJobErrors(const JobReading& reading) {
  std::fputs(FormatJobErrors(reading.errors).c_str(), stderr);
  const std::string advice = FetchAdvice(reading.job);
  if (advice.empty()) return;
  std::fprintf(stderr, "tessera: the data is not there; %s\n", advice.c_str());
}

}  // namespace tessera
