// What is logged while a test does something.
#ifndef TESSERA_TESTS_COMMON_BASE_CAPTURED_LOG_H_
#define TESSERA_TESTS_COMMON_BASE_CAPTURED_LOG_H_

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include <catch2/catch.hpp>

#include "common/base/log.h"

namespace tessera {

// All that is written to stderr while `what` runs: at LogLevel::kInfo, whatever level other tests of this program want.
inline std::string CapturedLog(const std::function<void()>& what) {
  LogLevel level = LogLevel::kDebug;
  while (!IsLogged(level)) level = static_cast<LogLevel>(static_cast<int>(level) + 1);
  SetLogLevel(LogLevel::kInfo);
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int before = dup(STDERR_FILENO);
  REQUIRE(dup2(fileno(file), STDERR_FILENO) >= 0);
  what();
  SetLogLevel(level);
  dup2(before, STDERR_FILENO);
  close(before);
  std::string text(static_cast<size_t>(lseek(fileno(file), 0, SEEK_END)), '\0');
  REQUIRE(pread(fileno(file), &text[0], text.size(), 0) == static_cast<ssize_t>(text.size()));
  std::fclose(file);
  return text;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_BASE_CAPTURED_LOG_H_
