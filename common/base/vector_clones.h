// One source, three instruction sets, chosen when the program loads. All give the same bits: the
// build forbids fused multiply-adds, and a sum has a fixed number of lanes, whatever the register's
// width. Only plain functions can be marked, and a lambda inside one is not compiled with it.
#ifndef TESSERA_COMMON_BASE_VECTOR_CLONES_H_
#define TESSERA_COMMON_BASE_VECTOR_CLONES_H_

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TESSERA_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TESSERA_VECTOR_CLONES
#endif

#endif  // TESSERA_COMMON_BASE_VECTOR_CLONES_H_
