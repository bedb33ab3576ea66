// cuDNN as it is installed here, if it is. Without a GPU it does not start, but it can be seen that it is one that this
// build can call.
#include "kernels/cuda/cudnn_library.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera::cuda {

TEST_CASE("an installed cuDNN has every call that is made of it", "[cuda][cudnn]") {
  const auto library = CudnnLibrary::Open(nullptr);
  if (library.ok()) {
    CHECK((*library)->name().rfind("cuDNN ", 0) == 0);
    return;
  }
  const std::string why(library.status().message());
  INFO(why);
  if (library.status().code() == absl::StatusCode::kNotFound) {
    WARN("no cuDNN here: " + why);
    return;
  }
  CHECK(library.status().code() == absl::StatusCode::kFailedPrecondition);
  // Not that it lacks a call, or is of another CUDA.
  CHECK(why.find("libcudnn.so.9: cuDNN 9.") == 0);
  CHECK(why.find("CUDNN_STATUS_") != std::string::npos);
}

}  // namespace tessera::cuda
