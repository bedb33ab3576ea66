#include "common/base/compute_environment.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Variables = std::vector<std::string>;

TEST_CASE("no variable of OpenMP, oneDNN or a GPU's libraries reaches what computes", "[base]") {
  for (const std::string variable :
       {"OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true", "OMP_MAX_ACTIVE_LEVELS=0", "OMP_NESTED=true",
        "OMP_NUM_THREADS=1", "OMP_PROC_BIND=true", "OMP_PLACES={0}", "OMP_STACKSIZE=1",
        "OMP_SCHEDULE=", "GOMP_CPU_AFFINITY=0", "GOMP_STACKSIZE=1", "KMP_DEVICE_THREAD_LIMIT=1",
        "DNNL_DEFAULT_FPMATH_MODE=BF16", "ONEDNN_DEFAULT_FPMATH_MODE=ANY",
        "DNNL_CPU_ISA_HINTS=PREFER_YMM", "ONEDNN_CPU_ISA_HINTS=PREFER_YMM",
        "NVIDIA_TF32_OVERRIDE=0", "CUBLAS_EMULATE_SINGLE_PRECISION=1"}) {
    CAPTURE(variable);
    CHECK(ComputeEnvironment({"A=1", variable, "GOMP_SPINCOUNT=7"}) ==
          Variables{"A=1", "GOMP_SPINCOUNT=7"});
  }
}

TEST_CASE("what is the user's stays as it is and where it is", "[base]") {
  const Variables given = {"PATH=/bin", "COMP_WORDS=1",           "XOMP_DYNAMIC=1",
                           "NO_VALUE",  "DNNL_VERBOSE=1",         "GOMP_SPINCOUNT=5",
                           "EMPTY=",    "ONEDNN_MAX_CPU_ISA=AVX2"};
  CHECK(ComputeEnvironment(given) == given);
}

TEST_CASE("threads wait for microseconds unless the user says how they wait", "[base]") {
  CHECK(ComputeEnvironment({}) == Variables{"GOMP_SPINCOUNT=1000"});
  CHECK(ComputeEnvironment({"A=1"}) == Variables{"A=1", "GOMP_SPINCOUNT=1000"});
  CHECK(ComputeEnvironment({"OMP_WAIT_POLICY=active", "OMP_DYNAMIC=1"}) ==
        Variables{"OMP_WAIT_POLICY=active"});
}

TEST_CASE("a child is given what it would otherwise start itself anew for", "[base]") {
  unsetenv("OMP_WAIT_POLICY");
  unsetenv("GOMP_SPINCOUNT");
  CHECK(AddedComputeVariables() == Variables{"GOMP_SPINCOUNT=1000"});
  setenv("GOMP_SPINCOUNT", "5", /*overwrite=*/1);
  CHECK(AddedComputeVariables().empty());
  unsetenv("GOMP_SPINCOUNT");
}

}  // namespace
}  // namespace tessera
