#include "deploy/cli/curves/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera {
namespace {

constexpr std::array<uint32_t, 256> CrcTable() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // its bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? kPolynomial : 0);
    table[i] = c;
  }
  return table;
}

uint32_t MaskedCrc(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// Appends the bytes of a number, the lowest first.
template <typename T>
void AppendFixed(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff));
  }
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// The wire types of protobuf's encoding.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendTag(int field, WireType type, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | type, out);
}

void AppendBytes(int field, absl::string_view bytes, std::string* out) {
  AppendTag(field, kBytes, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes.data(), bytes.size());
}

void AppendCount(int field, uint64_t value, std::string* out) {
  AppendTag(field, kVarint, out);
  AppendVarint(value, out);
}

// The fields that all events have.
std::string Event(double wall_time, uint64_t step) {
  std::string event;
  AppendTag(1, kFixed64, &event);
  uint64_t bits;
  std::memcpy(&bits, &wall_time, sizeof(bits));
  AppendFixed(bits, &event);
  AppendCount(2, step, &event);
  return event;
}

std::string Record(absl::string_view data) {
  std::string record;
  AppendFixed(static_cast<uint64_t>(data.size()), &record);
  AppendFixed(MaskedCrc(record), &record);
  record.append(data.data(), data.size());
  AppendFixed(MaskedCrc(data), &record);
  return record;
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0 || *name == '\0') return "host";
  return name;
}

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = CrcTable();
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  }
  return ~crc;
}

std::string VersionEvent(double wall_time) {
  std::string event = Event(wall_time, 0);
  AppendBytes(3, "brain.Event:2", &event);
  return Record(event);
}

std::string ScalarsEvent(double wall_time, uint64_t step,
                         const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    const auto value = static_cast<float>(number);
    if (!std::isfinite(value)) continue;
    std::string entry;
    AppendBytes(1, tag, &entry);
    AppendTag(2, kFixed32, &entry);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    AppendFixed(bits, &entry);
    AppendBytes(1, entry, &summary);
  }
  std::string event = Event(wall_time, step);
  AppendBytes(5, summary, &event);
  return Record(event);
}

std::string RestartEvent(double wall_time, uint64_t step) {
  std::string log;
  AppendCount(1, 1, &log);
  std::string event = Event(wall_time, step);
  AppendBytes(7, log, &event);
  return Record(event);
}

absl::Status EventWriter::Open() {
  const auto refuse = [this](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("--tensorboard: got \"", directory_,
                                                   "\", want a folder that can be written: ", why));
  };
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) return refuse(error.message());
  if (!std::filesystem::is_directory(directory_, error)) return refuse(std::strerror(ENOTDIR));
  if (access(directory_.c_str(), W_OK | X_OK) != 0) return refuse(std::strerror(errno));
  return absl::OkStatus();
}

absl::Status EventWriter::Append(absl::string_view records) {
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  std::string bytes;
  if (path_.empty()) {
    const std::string name =
        absl::StrCat(directory_, "/events.out.tfevents.", static_cast<int64_t>(now), ".",
                     HostName(), ".", getpid());
    path_ = name;
    // A process may have written another file within the second.
    for (int i = 1; access(path_.c_str(), F_OK) == 0; ++i) path_ = absl::StrCat(name, ".", i);
    bytes = VersionEvent(now);
  }
  bytes.append(records.data(), records.size());
  FILE* const file = std::fopen(path_.c_str(), "ab");
  bool is_written =
      file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file != nullptr) is_written = std::fclose(file) == 0 && is_written;
  if (is_written) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("--tensorboard: ", path_, ": ", std::strerror(errno)));
}

absl::Status EventWriter::Write(const v1::JobStatus& status) {
  const Curve curve = CurveOf(status);
  const auto made = [](const CurvePoint& point) {
    return std::make_pair(point.step, point.seconds);
  };
  size_t stands = 0;
  while (stands < written_.size() && stands < curve.points.size() &&
         written_[stands] == made(curve.points[stands])) {
    ++stands;
  }
  std::string records;
  // The time of day is the one at which the server told the status, or of a report the one at which the job ended.
  const double told =
      status.clock_ns() > 0 ? static_cast<double>(status.clock_ns()) * 1e-9
      : status.origin().started_ns() > 0
          ? static_cast<double>(status.origin().started_ns()) * 1e-9 + status.wall_seconds()
          : absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  // A status that is too large for a message has its last evaluation alone, and a coordinator that has just begun has
  // none; neither says that the job went back.
  const bool is_cut = curve.points.empty() || (stands == 0 && !written_.empty() &&
                                               curve.points.front().step > written_.front().first);
  if (is_cut) {
    stands = 0;
    while (stands < curve.points.size() && !written_.empty() &&
           made(curve.points[stands]).first <= written_.back().first) {
      ++stands;
    }
  } else if (stands < written_.size()) {
    records = RestartEvent(told, written_[stands].first);
    written_.resize(stands);
  }
  for (size_t i = stands; i < curve.points.size(); ++i) {
    const CurvePoint& point = curve.points[i];
    const double wall_time = told - std::max(0.0, status.train_seconds() - point.seconds);
    absl::StrAppend(&records, ScalarsEvent(wall_time, point.step,
                                           {{"accuracy/test", point.test_accuracy},
                                            {"loss/test", point.test_loss},
                                            {"loss/train", point.train_loss},
                                            {"perplexity/test", point.perplexity},
                                            {"job/examples_per_second", point.rate},
                                            {"job/bytes", point.bytes},
                                            {"job/epoch", point.epoch},
                                            {"job/seconds", point.seconds}}));
    written_.push_back(made(point));
  }
  return records.empty() ? absl::OkStatus() : Append(records);
}

}  // namespace tessera
