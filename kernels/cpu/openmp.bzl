"""What code that asks OpenMP for threads is compiled with."""

# Clang's OpenMP is another library, and its threads are not known to the sanitizers.
OPENMP = select({
    "@system//:sanitize": ["-fopenmp-simd"],
    "//conditions:default": ["-fopenmp"],
})
