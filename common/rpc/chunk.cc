#include "common/rpc/chunk.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// Number 15 has a tag of one byte. Every message with a payload has it in this field.
constexpr uint64_t kPayloadField = 15;

enum WireType : uint64_t {
  kVarint = 0,
  kFixed64 = 1,
  kLength = 2,
  kGroupBegin = 3,
  kGroupEnd = 4,
  kFixed32 = 5,
};

// Walks a message's slices from front to back.
class Cursor {
 public:
  Cursor(const std::vector<grpc::Slice>& slices, int64_t size)
      : slices_(slices), left_(size), size_(size) {}

  int64_t left() const { return left_; }
  int64_t position() const { return size_ - left_; }

  // Calls piece(data, size) for the next `count` bytes, run by run. There must be that many.
  template <typename Piece>
  void Take(int64_t count, Piece piece) {
    TESSERA_CHECK(count <= left_);
    left_ -= count;
    while (count > 0) {
      const grpc::Slice& slice = slices_[slice_];
      const int64_t run = std::min(count, static_cast<int64_t>(slice.size()) - offset_);
      // An empty slice may lie between others.
      if (run > 0) piece(reinterpret_cast<const char*>(slice.begin()) + offset_, run);
      offset_ += run;
      count -= run;
      if (offset_ == static_cast<int64_t>(slice.size())) {
        ++slice_;
        offset_ = 0;
      }
    }
  }

  // Reads a base-128 number of at most `bytes_max` bytes.
  absl::StatusOr<uint64_t> Varint(absl::string_view what, int bytes_max) {
    const int64_t begin = position();
    uint64_t value = 0;
    for (int i = 0; i < bytes_max; ++i) {
      if (left_ == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("message: ", what, " at byte ", begin, " is cut off after ", i, " bytes"));
      }
      uint64_t byte = 0;
      Take(1, [&byte](const char* data, int64_t) { byte = static_cast<unsigned char>(*data); });
      value |= (byte & 0x7f) << (7 * i);
      if (byte < 0x80) return value;
    }
    return absl::InvalidArgumentError(absl::StrCat("message: ", what, " at byte ", begin,
                                                   " is longer than ", bytes_max, " bytes"));
  }

 private:
  const std::vector<grpc::Slice>& slices_;
  size_t slice_ = 0;
  int64_t offset_ = 0;
  int64_t left_;
  const int64_t size_;
};

int EncodeVarint(uint64_t value, char* out) {
  int size = 0;
  for (; value >= 0x80; value >>= 7) out[size++] = static_cast<char>(value | 0x80);
  out[size++] = static_cast<char>(value);
  return size;
}

void AppendVarint(uint64_t value, std::string* out) {
  char bytes[10];
  out->append(bytes, EncodeVarint(value, bytes));
}

// Reads one message. The fields that are not the payload are collected, byte for byte, in `head`.
class Reader {
 public:
  Reader(const std::vector<grpc::Slice>& slices, int64_t size, std::shared_ptr<const void> owner)
      : in_(slices, size), owner_(std::move(owner)) {}

  absl::Status Run(Payload* payload) {
    while (in_.left() > 0) TESSERA_RETURN_IF_ERROR(Field(payload));
    if (groups_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("message: group ", groups_.back(), " does not end"));
  }
  const std::string& head() const { return head_; }

 private:
  absl::Status Field(Payload* payload) {
    const int64_t begin = in_.position();
    // A tag has at most 32 bits, which are five groups of seven.
    TESSERA_ASSIGN_OR_RETURN(const uint64_t tag, in_.Varint("a field's tag", 5));
    const uint64_t number = tag >> 3;
    if (number == 0 || tag > 0xffffffffu) {
      // protobuf's limits: numbers from 1, and a tag within 32 bits.
      return absl::InvalidArgumentError(absl::StrCat("message: field number at byte ", begin,
                                                     " is ", number, ", want 1 to 536870911"));
    }
    // Within a group the number means another field.
    if (number == kPayloadField && (tag & 7) == kLength && groups_.empty()) {
      TESSERA_ASSIGN_OR_RETURN(const int64_t length, Length(number));
      *payload = Payload();
      // The last payload counts where there are several, as with protobuf.
      in_.Take(length, [&](const char* data, int64_t size) {
        payload->Append({data, size}, owner_);
      });
      return absl::OkStatus();
    }
    AppendVarint(tag, &head_);
    switch (tag & 7) {
      case kVarint: {
        TESSERA_ASSIGN_OR_RETURN(const uint64_t value, in_.Varint("a number", 10));
        AppendVarint(value, &head_);
        return absl::OkStatus();
      }
      case kFixed64:
        return Copy(number, 8);
      case kFixed32:
        return Copy(number, 4);
      case kLength: {
        TESSERA_ASSIGN_OR_RETURN(const int64_t length, Length(number));
        AppendVarint(length, &head_);
        return Copy(number, length);
      }
      case kGroupBegin:
        groups_.push_back(number);
        if (groups_.size() <= kGroupDepthMax) return absl::OkStatus();
        return absl::InvalidArgumentError(absl::StrCat("message: groups are nested deeper than ",
                                                       kGroupDepthMax, " at byte ", begin));
      case kGroupEnd:
        if (!groups_.empty() && groups_.back() == number) {
          // Groups are read for the sake of unknown fields only; an end must match the last beginning.
          groups_.pop_back();
          return absl::OkStatus();
        }
        return absl::InvalidArgumentError(absl::StrCat("message: the end of group ", number,
                                                       " at byte ", begin, " has no beginning"));
      default:
        return absl::InvalidArgumentError(absl::StrCat("message: wire type of field ", number,
                                                       " at byte ", begin, " is ", tag & 7,
                                                       ", want 0 to 5"));
    }
  }

  absl::StatusOr<int64_t> Length(uint64_t number) {
    const int64_t begin = in_.position();
    // A length is compared with what is left before anything is taken, so that no sender can ask for memory.
    TESSERA_ASSIGN_OR_RETURN(const uint64_t length, in_.Varint("a length", 5));
    if (length <= static_cast<uint64_t>(in_.left())) return static_cast<int64_t>(length);
    return absl::InvalidArgumentError(absl::StrCat("message: field ", number, " at byte ", begin,
                                                   " is ", length, " bytes long, want at most the ",
                                                   in_.left(), " that are left"));
  }

  absl::Status Copy(uint64_t number, int64_t count) {
    if (count > in_.left()) {
      return absl::InvalidArgumentError(absl::StrCat("message: field ", number, " at byte ",
                                                     in_.position(), " is cut off after ",
                                                     in_.left(), " of ", count, " bytes"));
    }
    // Without a limit a sender could make the head grow to the size of a payload.
    if (count + static_cast<int64_t>(head_.size()) > kHeadBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "message: fields beside the payload take more than ", kHeadBytesMax, " bytes"));
    }
    in_.Take(count, [this](const char* data, int64_t size) { head_.append(data, size); });
    return absl::OkStatus();
  }

  Cursor in_;
  const std::shared_ptr<const void> owner_;
  std::string head_;
  std::vector<uint64_t> groups_;
};

// Refuses a message that is larger than the limit before anything of it is read.
absl::Status CheckSize(const grpc::ByteBuffer& message, int64_t bytes_max) {
  const int64_t size = static_cast<int64_t>(message.Length());
  if (size <= bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("message: is ", size, " bytes, want at most ", bytes_max));
}

}  // namespace

grpc::ByteBuffer WriteChunk(const google::protobuf::MessageLite& head,
                            absl::Span<const grpc::Slice> payload) {
  int64_t payload_bytes = 0;
  for (const grpc::Slice& slice : payload) payload_bytes += static_cast<int64_t>(slice.size());
  std::string front;
  head.AppendToString(&front);
  // An empty payload is left out, as protobuf leaves out an empty field.
  if (payload_bytes == 0) {
    const grpc::Slice slice(front);
    return grpc::ByteBuffer(&slice, 1);
  }
  AppendVarint(kPayloadField << 3 | kLength, &front);
  AppendVarint(payload_bytes, &front);
  // The payload's field follows the others without being copied: the message is this front and the caller's slices.
  std::vector<grpc::Slice> slices;
  slices.reserve(1 + payload.size());
  slices.emplace_back(front);
  slices.insert(slices.end(), payload.begin(), payload.end());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status ReadChunk(const grpc::ByteBuffer& message, google::protobuf::MessageLite* head,
                       Payload* payload) {
  TESSERA_RETURN_IF_ERROR(CheckSize(message, kMessageBytesMax));
  *payload = Payload();
  // A short slice holds its bytes itself, so the vector must not move once it is filled.
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (message.Valid()) message.Dump(slices.get());
  Reader reader(*slices, message.Length(), slices);
  TESSERA_RETURN_IF_ERROR(reader.Run(payload));
  if (head->ParseFromString(reader.head())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("message: fields beside the payload are no ", head->GetTypeName()));
}

absl::Status ReadMessage(const grpc::ByteBuffer& message, google::protobuf::MessageLite* out) {
  TESSERA_RETURN_IF_ERROR(CheckSize(message, kHeadBytesMax));
  // A message without a payload is small, so its slices are joined.
  std::string bytes;
  std::vector<grpc::Slice> slices;
  if (message.Valid()) message.Dump(&slices);
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  if (out->ParseFromString(bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("message: is no ", out->GetTypeName()));
}

grpc::ByteBuffer WriteMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace tessera
