"""What is built wherever there is a CUDA toolkit. Not in cuda.bzl, which the toolkit's repository comes from."""

load("@cuda//:present.bzl", "PRESENT")

def toolkit_only():
    """For target_compatible_with: such targets are left out where there is no nvcc."""
    return [] if PRESENT else ["//third_party/cuda:absent"]
