#include "worker/data/file_kind.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace tessera {
namespace {

// RFC 1952, section 2.3.1.
// 5 bits of flags are used; the others must be 0.
constexpr unsigned char kGzipFlagsEnd = 0x20;
// Where a tar archive says what it is.
constexpr size_t kTarMagicAt = 257;

struct Magic {
  absl::string_view bytes;
  FileKind kind;
};

template <size_t N>
constexpr Magic Begins(const char (&bytes)[N], FileKind kind) {
  return {absl::string_view(bytes, N - 1), kind};
}

constexpr FileKind kPickle = {
    "a Python pickle, which is a program and is never run",
    "save arrays with np.save; CIFAR has a binary version beside its Python one"};
constexpr FileKind kZip = {"a ZIP archive", "unpack it; of an .npz save each array with np.save"};

// Only files that people name by mistake, or that a download leaves in place of the data.
constexpr Magic kMagics[] = {
    Begins("\x28\xb5\x2f\xfd",
           {"compressed by zstd", "unpack it with zstd -d, or compress it with gzip"}),
    Begins("\xfd"
           "7zXZ\0",
           {"compressed by xz", "unpack it with xz -d, or compress it with gzip"}),
    Begins("BZh91AY&SY",
           {"compressed by bzip2", "unpack it with bzip2 -d, or compress it with gzip"}),
    Begins("\x04\x22\x4d\x18",
           {"compressed by lz4", "unpack it with lz4 -d, or compress it with gzip"}),
    Begins("PK\3\4", kZip),
    Begins("PK\5\6", kZip),
    Begins("7z\xbc\xaf\x27\x1c", {"a 7z archive", "unpack it with 7z x"}),
    Begins("Rar!\x1a\x07", {"a RAR archive", "unpack it"}),
    Begins("\x89HDF\r\n\x1a\n", {"an HDF5 file", "save its arrays with np.save"}),
    Begins("CDF\1", {"a NetCDF file", "save its arrays with np.save"}),
    Begins("PAR1", {"a Parquet file", "write its table as csv, or its columns with np.save"}),
    Begins("ARROW1", {"an Arrow file", "write its table as csv, or its columns with np.save"}),
    Begins("MATLAB 5.0 MAT-file", {"a MATLAB file", "save its arrays with np.save"}),
    Begins("SQLite format 3\0", {"an SQLite data base", "write its table as csv"}),
    Begins("\x80\x02}q", kPickle),
    Begins("\x80\x03}q", kPickle),
    Begins("\x80\x02"
           "cnumpy",
           kPickle),
    Begins("\x80\x03"
           "cnumpy",
           kPickle),
    Begins("\x80\x02"
           "ctorch",
           kPickle),
    Begins("\x89PNG\r\n\x1a\n", {"a PNG image", "save the pixels of all images as one array"}),
    Begins("\xff\xd8\xff\xe0\0\x10JFIF",
           {"a JPEG image", "save the pixels of all images as one array"}),
    Begins("version https://git-lfs",
           {"a Git LFS pointer, not the file itself", "get the file with git lfs pull"}),
    Begins("/annex/objects/",
           {"a git-annex pointer, not the file itself", "get the file with git annex get"}),
};

// In small letters; white space before them does not matter.
constexpr absl::string_view kPages[] = {"<!doctype", "<html", "<head", "<body", "<?xml", "<error>"};
constexpr FileKind kPage = {"an HTML or XML page, as a server sends it in place of a file",
                            "download the file again, and look at what came", /*is_text=*/true};
constexpr FileKind kJson = {"JSON, as a server sends it in place of a file",
                            "download the file again, and look at what came", /*is_text=*/true};
constexpr FileKind kTar = {"a tar archive", "unpack it with tar -xf, and name the files in it"};

// Protocols 4 and 5 begin with a frame and its size, which is below 2^40.
bool IsFramedPickle(absl::string_view head) {
  return head.size() >= 11 && head[0] == '\x80' && (head[1] == 4 || head[1] == 5) &&
         head[2] == '\x95' && head.substr(8, 3) == absl::string_view("\0\0\0", 3);
}

// Few bytes begin a page, and pixels may have them; they do not go on so.
bool IsText(absl::string_view head) {
  return std::none_of(head.begin(), head.end(),
                      [](unsigned char c) { return c < ' ' && !absl::ascii_isspace(c); });
}

}  // namespace

const FileKind* FileKindOf(absl::string_view head) {
  for (const Magic& magic : kMagics) {
    if (absl::StartsWith(head, magic.bytes)) return &magic.kind;
  }
  if (IsFramedPickle(head)) return &kPickle;
  const absl::string_view behind = head.substr(std::min(head.size(), kTarMagicAt));
  if (absl::StartsWith(behind, "ustar")) return &kTar;
  if (!IsText(head)) return nullptr;
  // A byte order mark, which some editors write.
  absl::ConsumePrefix(&head, "\xEF\xBB\xBF");
  head = absl::StripLeadingAsciiWhitespace(head);
  for (const absl::string_view page : kPages) {
    if (absl::StartsWithIgnoreCase(head, page)) return &kPage;
  }
  if (absl::StartsWith(head, "{\"") || absl::StartsWith(head, "[{")) return &kJson;
  return nullptr;
}

bool IsGzip(absl::string_view head) {
  // The third byte names DEFLATE, the only method there is.
  return head.size() >= kGzipHeadBytes && absl::StartsWith(head, "\x1f\x8b\x08") &&
         static_cast<unsigned char>(head[3]) < kGzipFlagsEnd;
}

}  // namespace tessera
