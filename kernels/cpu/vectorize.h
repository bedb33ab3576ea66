// Compiles a function for several instruction sets; the loader picks the CPU's best.
//
// All versions compute the same bits: products are not fused (-ffp-contract=off), and a sum has a
// fixed number of lanes, whatever the register's width. Only plain functions can be marked, and a
// lambda inside one is not compiled with it.
#ifndef TESSERA_KERNELS_CPU_VECTORIZE_H_
#define TESSERA_KERNELS_CPU_VECTORIZE_H_

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_VECTORIZE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TESSERA_VECTORIZE
#endif

#endif  // TESSERA_KERNELS_CPU_VECTORIZE_H_
