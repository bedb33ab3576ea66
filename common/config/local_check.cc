#include "common/config/local_check.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/checkpoint_keys.h"
#include "common/config/named_path.h"

namespace tessera {
namespace {

constexpr char kCertificate[] = "security.certificate";
constexpr char kPrivateKey[] = "security.private_key";
constexpr char kTokenFile[] = "security.token_file";
constexpr char kRestore[] = "checkpoint.restore";

}  // namespace

void CheckSecurityKeys(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  if (errors->Touches("security")) return;
  const v1::Security& security = job.security();
  const bool has_certificate = !security.certificate().empty();
  const bool has_key = !security.private_key().empty();
  // What is missing has no place: that of the other one is where to look.
  if (has_certificate && !has_key) {
    errors->Add(PositionOf(positions, kCertificate), kPrivateKey,
                "missing beside certificate, want both or neither");
  } else if (has_key && !has_certificate) {
    errors->Add(PositionOf(positions, kPrivateKey), kCertificate,
                "missing beside private_key, want both or neither");
  }
  if (security.token_file().empty() || has_certificate || !security.authority().empty()) return;
  errors->Add(PositionOf(positions, kTokenFile), kTokenFile,
              "got a file without certificate or authority, want TLS beside it: whoever listens on "
              "the way could read the token and use it");
}

void CheckSecurityFiles(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  const v1::Security& security = job.security();
  for (const auto& [key, path] : {std::make_pair(kCertificate, &security.certificate()),
                                  std::make_pair(kPrivateKey, &security.private_key()),
                                  std::make_pair("security.authority", &security.authority()),
                                  std::make_pair(kTokenFile, &security.token_file())}) {
    if (path->empty()) continue;
    const std::string reason = WhyNoFile(*path);
    if (reason.empty()) continue;
    errors->Add(PositionOf(positions, key), key,
                absl::StrCat("got ", Quoted(*path), ", want a file that can be read; ", *path, ": ",
                             reason));
  }
}

void CheckRestoreFolder(const Positions& positions, const v1::Job& job, JobErrors* errors) {
  const std::string& path = job.checkpoint().restore();
  // Any one disk may be empty, or not have been there: the others have what is on it.
  if (path.empty() || HasOwnDisks(job) || errors->Touches(kRestore)) return;
  const std::string reason = WhyNoFolder(path);
  if (reason.empty()) return;
  errors->Add(PositionOf(positions, kRestore), kRestore,
              absl::StrCat("got ", Quoted(path),
                           ", where no whole checkpoint is, want a step-... folder or the one that "
                           "it is in; ",
                           path, ": ", reason));
}

}  // namespace tessera
