// A check that stays on in release: for our own bugs, never for what users, disks or networks can
// cause.
#ifndef TESSERA_COMMON_BASE_CHECK_H_
#define TESSERA_COMMON_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Ends the process with the file, the line and the broken condition.
#define TESSERA_CHECK(condition)                                                             \
  do {                                                                                       \
    if (__builtin_expect(!(condition), 0)) {                                                 \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)

// Leaves the function with the error of an absl::Status or absl::StatusOr.
#define TESSERA_RETURN_IF_ERROR(expression)                   \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#define TESSERA_CONCAT_INNER(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_INNER(a, b)
#define TESSERA_ASSIGN_OR_RETURN(left, expression) \
  TESSERA_ASSIGN_OR_RETURN_INNER(TESSERA_CONCAT(result_, __LINE__), left, expression)
#define TESSERA_ASSIGN_OR_RETURN_INNER(result, left, expression) \
  auto result = (expression);                                    \
  if (!result.ok()) return std::move(result).status();           \
  left = std::move(result).value()

#endif  // TESSERA_COMMON_BASE_CHECK_H_
