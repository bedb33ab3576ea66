// Counts the bytes that memcpy and memmove move in a process: preload it (LD_PRELOAD), and
// //bench/exchange prints copies per byte. Calls that the compiler expanded in place are small and
// not seen.
#include <stddef.h>
#include <stdint.h>

static uint64_t copied;

uint64_t tessera_copied_bytes(void) { return __atomic_load_n(&copied, __ATOMIC_RELAXED); }

void* memmove(void* to, const void* from, size_t size) {
  void* const result = to;
  __atomic_fetch_add(&copied, size, __ATOMIC_RELAXED);
  if ((uintptr_t)to - (uintptr_t)from >= size) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
  } else {
    const char* f = (const char*)from + size - 1;
    char* t = (char*)to + size - 1;
    __asm__ volatile("std; rep movsb; cld" : "+D"(t), "+S"(f), "+c"(size) : : "memory");
  }
  return result;
}

void* memcpy(void* restrict to, const void* restrict from, size_t size) {
  return memmove(to, from, size);
}
