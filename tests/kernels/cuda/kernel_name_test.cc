#include "kernels/cuda/kernel_name.h"

#include <catch2/catch.hpp>

#include "kernels/cuda/kernel_list.h"

namespace tessera::cuda {

TEST_CASE("a kernel is named as it is listed", "[cuda]") {
  CHECK(KernelName(SignatureOf<AddRows>()) == "AddRows");
  CHECK(KernelName(SignatureOf<Elementwise<RoundsToo<AdamOp>>>()) ==
        "Elementwise<RoundsToo<AdamOp> >");
  CHECK(KernelName(SignatureOf<ColumnMap<BiasOp, true>>()) == "ColumnMap<BiasOp, true>");
  CHECK(KernelName("another compiler's words") == "another compiler's words");
}

}  // namespace tessera::cuda
