#include "worker/data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/data/file_kind.h"
#include "worker/data/limits.h"

namespace tessera {
namespace {

// A quarter of a MiB keeps system calls rare and stays in the second-level cache.
constexpr size_t kInputBytes = size_t{256} << 10;
// zlib counts in unsigned int.
constexpr size_t kInflateBytesMax = size_t{1} << 30;
// 15 bits of window, and 16 for "gzip, not zlib".
constexpr int kGzipWindowBits = 15 + 16;

absl::Status FileError(absl::string_view path, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(const std::string& path, Kinds kinds) {
  // Without O_NONBLOCK, opening a pipe waits for its writer.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return FileError(path, "cannot open");
  auto source = std::unique_ptr<ByteSource>(new ByteSource(path, file, kinds));
  struct stat about;
  if (fstat(file, &about) != 0) return FileError(path, "cannot read its size");
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  source->content_bytes_max_ = about.st_size;
  TESSERA_ASSIGN_OR_RETURN(const std::string head, source->FileHead());
  TESSERA_RETURN_IF_ERROR(source->CheckKind(head));
  // By its content or its name: a file that says gzip by its name alone is refused below, not read as data.
  if (!IsGzip(head) && !absl::EndsWith(path, ".gz")) return source;
  if (!IsGzip(head) && head.size() >= kGzipHeadBytes) {
    return absl::DataLossError(absl::StrCat(
        path,
        ": gzip data is bad at byte 0 of the file: its name ends in .gz, and its content is no "
        "gzip; give it its name without .gz, or compress it"));
  }
  TESSERA_RETURN_IF_ERROR(source->BeginInflating(about.st_size));
  return source;
}

ByteSource::ByteSource(std::string path, int file, Kinds kinds)
    : path_(std::move(path)), file_(file), kinds_(kinds) {}

ByteSource::~ByteSource() {
  if (inflater_ != nullptr) inflateEnd(inflater_.get());
  close(file_);
}

// As the file has it, compressed or not.
// pread, so that the reading position stays at the beginning.
absl::StatusOr<std::string> ByteSource::FileHead() const {
  std::string head(kFileHeadBytes, '\0');
  size_t got = 0;
  while (got < head.size()) {
    const ssize_t n = pread(file_, &head[got], head.size() - got, static_cast<off_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(path_, absl::StrCat("cannot read at byte ", got));
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  head.resize(got);
  return head;
}

absl::Status ByteSource::CheckKind(absl::string_view head) const {
  const FileKind* const kind = FileKindOf(head);
  if (kind == nullptr || (kind->is_text && kinds_ == Kinds::kAnyText)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path_, ": content is ",
                                                 compressed() ? "gzip of what is " : "", kind->name,
                                                 ", want data; ", kind->advice));
}

absl::Status ByteSource::BeginInflating(int64_t file_bytes) {
  // DEFLATE packs at most so much into a byte; the product may not fit an int64_t.
  const bool multiplies = file_bytes > INT64_MAX / kGzipExpansionMax;
  content_bytes_max_ = multiplies ? INT64_MAX : file_bytes * kGzipExpansionMax;
  inflater_ = std::make_unique<z_stream_s>();
  input_.resize(kInputBytes);
  if (inflateInit2(inflater_.get(), kGzipWindowBits) == Z_OK) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(path_, ": no memory to inflate it"));
}

absl::StatusOr<size_t> ByteSource::Read(void* out, size_t bytes) {
  absl::StatusOr<size_t> got = compressed() ? ReadGzip(out, bytes) : ReadFile(out, bytes);
  if (got.ok()) offset_ += static_cast<int64_t>(*got);
  return got;
}

absl::Status ByteSource::ReadExactly(void* out, size_t bytes, absl::string_view what) {
  TESSERA_ASSIGN_OR_RETURN(const size_t got, Read(out, bytes));
  if (got == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path_, ": content ends at byte ", offset_,
                                                 ", want ", bytes - got, " more for ", what));
}

absl::Status ByteSource::ExpectEnd() {
  const int64_t end = offset_;
  char extra;
  TESSERA_ASSIGN_OR_RETURN(const size_t got, Read(&extra, 1));
  if (got == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": content goes on after byte ", end, ", want its end there"));
}

// A short read is no end: signals and network file systems cut reads off.
absl::StatusOr<size_t> ByteSource::ReadFile(void* out, size_t bytes) {
  size_t got = 0;
  while (got < bytes) {
    const ssize_t n = read(file_, static_cast<char*>(out) + got, bytes - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(path_, absl::StrCat("cannot read at byte ", offset_ + got));
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

absl::StatusOr<size_t> ByteSource::ReadGzip(void* out, size_t bytes) {
  // The kind of what is inside a gzip file is checked as that of a plain file is.
  if (offset_ == 0 && bytes > 0) {
    head_.resize(kFileHeadBytes);
    TESSERA_ASSIGN_OR_RETURN(const size_t head_bytes, Inflate(&head_[0], head_.size()));
    head_.resize(head_bytes);
    TESSERA_RETURN_IF_ERROR(CheckKind(head_));
  }
  const size_t of_head = std::min(bytes, head_.size() - head_taken_);
  std::memcpy(out, head_.data() + head_taken_, of_head);
  head_taken_ += of_head;
  if (of_head == bytes) return bytes;
  TESSERA_ASSIGN_OR_RETURN(const size_t got,
                           Inflate(static_cast<char*>(out) + of_head, bytes - of_head));
  return of_head + got;
}

absl::StatusOr<size_t> ByteSource::Inflate(void* out, size_t bytes) {
  z_stream_s& z = *inflater_;
  size_t got = 0;
  while (got < bytes) {
    if (z.avail_in == 0) {
      TESSERA_RETURN_IF_ERROR(RefillInput());
      if (z.avail_in == 0) {
        // A file that ends within a member was cut off.
        if (inside_member_ || members_ == 0) return Corrupt("the file ends too early");
        break;
      }
    }
    // Several gzip files, one behind the other, are one gzip file.
    if (!inside_member_) {
      // Zeros pad what comes from a tape or a disk's blocks.
      while (members_ > 0 && z.avail_in > 0 && *z.next_in == 0) {
        ++z.next_in;
        --z.avail_in;
      }
      if (z.avail_in == 0) continue;
      TESSERA_CHECK(inflateReset(&z) == Z_OK);
      inside_member_ = true;
    }
    const size_t room = std::min(bytes - got, kInflateBytesMax);
    z.next_out = static_cast<unsigned char*>(out) + got;
    z.avail_out = static_cast<unsigned>(room);
    const int result = inflate(&z, Z_NO_FLUSH);
    got += room - z.avail_out;
    // Z_BUF_ERROR without input left only says that more is wanted.
    if (result == Z_STREAM_END) {
      inside_member_ = false;
      ++members_;
    } else if (result != Z_OK && !(result == Z_BUF_ERROR && z.avail_in == 0)) {
      return Corrupt(z.msg != nullptr ? z.msg : "the data is no gzip");
    }
  }
  return got;
}

absl::Status ByteSource::RefillInput() {
  TESSERA_ASSIGN_OR_RETURN(const size_t got, ReadFile(input_.data(), input_.size()));
  inflater_->next_in = input_.data();
  inflater_->avail_in = static_cast<unsigned>(got);
  input_offset_ += static_cast<int64_t>(got);
  return absl::OkStatus();
}

absl::Status ByteSource::Corrupt(absl::string_view why) const {
  // Where the decompressor was when it noticed, not where the buffer ends.
  return absl::DataLossError(absl::StrCat(path_, ": gzip data is bad at byte ",
                                          input_offset_ - inflater_->avail_in,
                                          " of the file: ", why));
}

namespace {

// Calls `take` with each piece of the file's content.
template <typename Take>
absl::Status ForEachPiece(const std::string& path, Take take) {
  TESSERA_ASSIGN_OR_RETURN(const auto source, ByteSource::Open(path, ByteSource::Kinds::kAnyText));
  std::string buffer(1 << 20, '\0');
  for (size_t got = buffer.size(); got == buffer.size();) {
    TESSERA_ASSIGN_OR_RETURN(got, source->Read(&buffer[0], buffer.size()));
    take(absl::string_view(buffer.data(), got));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ContentOf(const std::vector<std::string>& paths) {
  std::string content;
  const auto append = [&content](absl::string_view piece) {
    content.append(piece.data(), piece.size());
  };
  for (const std::string& path : paths) TESSERA_RETURN_IF_ERROR(ForEachPiece(path, append));
  return content;
}

absl::StatusOr<int64_t> ContentBytes(const std::string& path) {
  int64_t bytes = 0;
  const auto count = [&bytes](absl::string_view piece) {
    bytes += static_cast<int64_t>(piece.size());
  };
  TESSERA_RETURN_IF_ERROR(ForEachPiece(path, count));
  return bytes;
}

}  // namespace tessera
