// The bundle that a launched job's machines run, as deploy/bundle.sh packs it, and where it lies on them.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_LAUNCH_BUNDLE_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_LAUNCH_BUNDLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// The list of a bundle's files with their sums, within it.
constexpr char kBundleList[] = "bundle.sha256";

// The first half of the SHA-256 of `text`, in hexadecimal digits.
std::string ShortSum(absl::string_view text);

// Constant after construction; any thread.
class LaunchBundle {
 public:
  // `folder`: the one that --bundle names; empty: the one that this program lies in.
  //   kInvalidArgument  it is no bundle
  static absl::StatusOr<LaunchBundle> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  // The sum of its list, which names the bundle on the machines: one that is changed is another.
  const std::string& digest() const { return digest_; }
  // A shell's command here that writes it to stdout, compressed: the files of its list and no others.
  std::string PackCommand() const;
  // A script there that reads this, and puts the bundle below `directory` ("bundles/DIGEST") once its sums are right
  // and its program runs.
  std::string UnpackScript(const std::string& directory) const;
  // The folder there.
  std::string FolderIn(const std::string& directory) const;

 private:
  LaunchBundle(std::string folder, std::string digest)
      : folder_(std::move(folder)), digest_(std::move(digest)) {}

  std::string folder_;
  std::string digest_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_LAUNCH_BUNDLE_H_
