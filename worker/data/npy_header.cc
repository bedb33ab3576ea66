#include "worker/data/npy_header.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "worker/data/field.h"
#include "worker/data/limits.h"

namespace tessera {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;

// One of descr's kinds and sizes.
struct NumberType {
  absl::string_view name;
  ValueType type;
};
constexpr NumberType kNumberTypes[] = {
    {"b1", ValueType::kBool}, {"u1", ValueType::kU8},  {"i1", ValueType::kI8},
    {"u2", ValueType::kU16},  {"i2", ValueType::kI16}, {"u4", ValueType::kU32},
    {"i4", ValueType::kI32},  {"u8", ValueType::kU64}, {"i8", ValueType::kI64},
    {"f2", ValueType::kF16},  {"f4", ValueType::kF32}, {"f8", ValueType::kF64},
};

// What other kinds hold, and what to save instead.
absl::string_view WhyNot(char kind) {
  switch (kind) {
    case 'O':
      return "Python objects, which would have to be unpickled and never are; save "
             "array.astype(np.float32)";
    case 'S':
    case 'T':
    case 'U':
    case 'a':
      return "text; save array.astype(np.float32), or the number of each word";
    case 'c':
      return "complex numbers; save array.real, or the parts as features of their own";
    case 'V':
      return "raw bytes, a structure or bfloat16; save array.astype(np.float32), or the fields of "
             "the structure as one array";
    case 'M':
    case 'm':
      return "times; save array.astype(np.int64)";
    default:
      return "not a type that is read here; save array.astype(np.float32)";
  }
}

// Parses the dict of a header, in the one form in which NumPy writes it: nothing is evaluated. Positions in messages
// are those in the file.
class HeaderParser {
 public:
  HeaderParser(absl::string_view text, int64_t offset) : text_(text), offset_(offset) {}

  absl::StatusOr<ArrayHeader> Parse();

 private:
  absl::Status Entry();
  absl::Status Descr();
  absl::Status FortranOrder();
  absl::Status Shape();
  absl::Status SetType(absl::string_view descr, size_t at);
  absl::Status SetSizes();

  void SkipSpace() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  // The next word begins with `c`, which is behind us now.
  bool Take(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  // Letters, digits, dots and signs.
  absl::string_view TakeWord();
  absl::StatusOr<absl::string_view> TakeString(absl::string_view what);
  absl::Status Wrong(size_t at, absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat("byte ", offset_ + static_cast<int64_t>(at), ": ", message));
  }
  // What stands here is not what is wanted.
  absl::Status Unexpected(absl::string_view want) const {
    const absl::string_view got = text_.substr(at_, 1);
    return Wrong(at_, absl::StrCat("header has ", got.empty() ? "its end" : QuotedField(got),
                                   ", want ", want));
  }
  std::string ShapeText() const {
    return absl::StrCat("(", absl::StrJoin(shape_, ", "), shape_.size() == 1 ? ",)" : ")");
  }

  const absl::string_view text_;
  const int64_t offset_;
  size_t at_ = 0;
  ArrayHeader header_;
  bool has_descr_ = false;
  std::optional<bool> fortran_order_;
  bool has_shape_ = false;
  size_t shape_at_ = 0;
  std::vector<int64_t> shape_;
};

absl::StatusOr<ArrayHeader> HeaderParser::Parse() {
  if (!Take('{')) return Unexpected("a dict, which begins with \"{\"");
  while (!Take('}')) {
    TESSERA_RETURN_IF_ERROR(Entry());
    // Python allows a comma behind the last entry, and NumPy writes one.
    if (Take(',')) continue;
    if (!Take('}')) return Unexpected("\",\" or \"}\" behind a value");
    break;
  }
  SkipSpace();
  if (at_ < text_.size()) return Unexpected("white space up to its end");
  for (const auto& [there, key] :
       {std::pair(has_descr_, "descr"), std::pair(fortran_order_.has_value(), "fortran_order"),
        std::pair(has_shape_, "shape")}) {
    if (there) continue;
    return Wrong(
        0, absl::StrCat("header has no key '", key, "', want descr, fortran_order and shape"));
  }
  TESSERA_RETURN_IF_ERROR(SetSizes());
  // With one long side both orders are the same bytes, which is why NumPy may say True for a vector.
  const auto is_long = [](int64_t size) { return size > 1; };
  if (*fortran_order_ && std::count_if(shape_.begin(), shape_.end(), is_long) > 1) {
    return Wrong(
        0, absl::StrCat("fortran_order is True for shape ", ShapeText(),
                        ", want False, each row in one piece; save np.ascontiguousarray(array)"));
  }
  return std::move(header_);
}

absl::Status HeaderParser::Entry() {
  SkipSpace();
  const size_t key_at = at_;
  TESSERA_ASSIGN_OR_RETURN(const absl::string_view key, TakeString("a key in quotes"));
  const bool known = key == "descr" || key == "fortran_order" || key == "shape";
  // Keys that are not known are refused, as they may change what the values mean.
  if (!known) {
    return Wrong(key_at, absl::StrCat("header has the key ", QuotedField(key),
                                      ", want descr, fortran_order and shape"));
  }
  if (key == "descr" ? has_descr_ : key == "shape" ? has_shape_ : fortran_order_.has_value()) {
    return Wrong(key_at,
                 absl::StrCat("header has the key ", QuotedField(key), " again, want it once"));
  }
  if (!Take(':')) return Unexpected("\":\" behind a key");
  SkipSpace();
  return key == "descr" ? Descr() : key == "shape" ? Shape() : FortranOrder();
}

absl::string_view HeaderParser::TakeWord() {
  SkipSpace();
  const size_t begin = at_;
  const auto of_word = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '+' ||
           c == '-';
  };
  while (at_ < text_.size() && of_word(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

absl::StatusOr<absl::string_view> HeaderParser::TakeString(absl::string_view what) {
  const char quote = Take('\'') ? '\'' : Take('"') ? '"' : '\0';
  if (quote == '\0') return Unexpected(what);
  // No escapes: neither keys nor types have any.
  const size_t end = text_.find_first_of(absl::StrCat(absl::string_view(&quote, 1), "\\\n"), at_);
  if (end == absl::string_view::npos || text_[end] != quote) {
    return Wrong(at_ - 1,
                 absl::StrCat("header has a text that does not end in its quote, want ", what));
  }
  const absl::string_view inside = text_.substr(at_, end - at_);
  at_ = end + 1;
  return inside;
}

absl::Status HeaderParser::Descr() {
  const size_t at = at_;
  // A structured array's descr is a list of pairs.
  if (at < text_.size() && (text_[at] == '[' || text_[at] == '(')) {
    return Wrong(at,
                 "descr is a list of fields (a structured array), want numbers; save its fields as "
                 "one array");
  }
  TESSERA_ASSIGN_OR_RETURN(const absl::string_view descr,
                           TakeString("descr's text in quotes, such as '<f4'"));
  has_descr_ = true;
  return SetType(descr, at);
}

absl::Status HeaderParser::SetType(absl::string_view descr, size_t at) {
  const bool has_order = !descr.empty() && absl::StrContains("<>|=", descr[0]);
  const absl::string_view name = descr.substr(has_order ? 1 : 0);
  const std::string is = absl::StrCat("descr is ", QuotedField(descr));
  for (const NumberType& number : kNumberTypes) {
    if (name != number.name) continue;
    // A single byte needs no order, and NumPy writes "|" in front of such types.
    const bool says_order = descr[0] == '<' || descr[0] == '>';
    if (!says_order && ValueBytes(number.type) > 1) {
      return Wrong(at, absl::StrCat(is, ", which does not say its byte order, want \"<", name,
                                    "\" or \">", name, "\""));
    }
    header_.type = number.type;
    header_.big_endian = descr[0] == '>';
    header_.type_text = absl::StrCat("descr ", QuotedField(descr));
    return absl::OkStatus();
  }
  const auto of_name = [](std::string* out, const NumberType& number) {
    out->append(number.name.data(), number.name.size());
  };
  return Wrong(at, absl::StrCat(is, ": ", WhyNot(name.empty() ? '\0' : name[0]), "; want ",
                                absl::StrJoin(kNumberTypes, ", ", of_name),
                                " behind \"<\", \">\" or \"|\""));
}

absl::Status HeaderParser::FortranOrder() {
  const size_t at = at_;
  const absl::string_view word = TakeWord();
  if (word != "True" && word != "False") {
    return Wrong(at, absl::StrCat("fortran_order is ", QuotedField(word), ", want True or False"));
  }
  fortran_order_ = word == "True";
  return absl::OkStatus();
}

absl::Status HeaderParser::Shape() {
  shape_at_ = at_;
  has_shape_ = true;
  if (!Take('(')) return Unexpected("shape's tuple, which begins with \"(\"");
  bool has_comma = false;
  while (!Take(')')) {
    if (!shape_.empty() && !has_comma) return Unexpected("\",\" or \")\" behind a size");
    SkipSpace();
    const size_t at = at_;
    const absl::string_view word = TakeWord();
    // Python 2 wrote some sizes as 10L.
    const absl::string_view digits = absl::StripSuffix(word, "L");
    const bool is_number =
        !digits.empty() && std::all_of(digits.begin(), digits.end(),
                                       [](unsigned char c) { return absl::ascii_isdigit(c); });
    // A number with a leading zero is no integer in Python 3.
    if (!is_number || (digits.size() > 1 && digits[0] == '0')) {
      return word.empty() ? Unexpected("a size of shape")
                          : Wrong(at, absl::StrCat("shape has ", QuotedField(word),
                                                   ", want an integer from 1"));
    }
    int64_t size = 0;
    if (!absl::SimpleAtoi(digits, &size)) {
      return Wrong(
          at, absl::StrCat("shape has ", QuotedField(word), ", want a size of at most ", kRowsMax));
    }
    if (shape_.size() == kNpyDimensionsMax) {
      return Wrong(at, absl::StrCat("shape has more than ", kNpyDimensionsMax,
                                    " sizes, want at most so many"));
    }
    shape_.push_back(size);
    has_comma = Take(',');
  }
  // In Python (3) is the number 3, and (3,) the tuple of it.
  if (shape_.size() == 1 && !has_comma) {
    return Wrong(shape_at_, absl::StrCat("shape is (", shape_[0], "), which is no tuple, want (",
                                         shape_[0], ",)"));
  }
  return absl::OkStatus();
}

absl::Status HeaderParser::SetSizes() {
  const auto wrong = [&](auto... want) {
    return Wrong(shape_at_, absl::StrCat("shape is ", ShapeText(), ", want ", want...));
  };
  if (shape_.empty()) {
    return wrong("at least one size, the number of rows; save array.reshape(1, -1) for one row");
  }
  if (shape_[0] == 0) return wrong("at least one row");
  if (shape_[0] > kRowsMax) return wrong("at most ", kRowsMax, " rows");
  header_.rows = shape_[0];
  const absl::Span<const int64_t> row = absl::MakeConstSpan(shape_).subspan(1);
  if (std::count(row.begin(), row.end(), 0) > 0) return wrong("at least one value in each row");
  // Divided, as the product might not fit.
  for (const int64_t size : row) {
    if (size > kFeaturesMax / header_.row_values) {
      return wrong("at most ", kFeaturesMax, " values in a row");
    }
    header_.row_values *= size;
  }
  header_.sizes = shape_;
  return absl::OkStatus();
}

absl::Status NoNpy(const std::string& path, const uint8_t* magic) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: byte 0: header begins with %02x %02x %02x %02x %02x %02x, want 93 4e 55 "
                      "4d 50 59 (NUMPY), as np.save writes it%s",
                      path, magic[0], magic[1], magic[2], magic[3], magic[4], magic[5],
                      magic[0] == 0 && magic[1] == 0 && magic[2] >= 8 && magic[2] <= 0xe
                          ? "; it seems to be an IDX file: set data.format to idx"
                          : ""));
}

}  // namespace

absl::StatusOr<ArrayHeader> ReadNpyHeader(ByteSource& source) {
  const std::string& path = source.path();
  uint8_t magic[kMagicBytes];
  TESSERA_RETURN_IF_ERROR(source.ReadExactly(magic, sizeof magic, "the NumPy header"));
  if (std::memcmp(magic, kMagic, kMagicBytes) != 0) return NoNpy(path, magic);
  uint8_t version[2];
  TESSERA_RETURN_IF_ERROR(source.ReadExactly(version, sizeof version, "the NumPy version"));
  if (version[0] < 1 || version[0] > 3 || version[1] != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": byte 6: NumPy format version is ",
                                                   version[0], ".", version[1],
                                                   ", want 1.0, 2.0 or 3.0"));
  }
  uint8_t size_bytes[4] = {};
  // Version 1.0 counts the header in 2 bytes, later ones in 4, with the least significant first.
  TESSERA_RETURN_IF_ERROR(
      source.ReadExactly(size_bytes, version[0] == 1 ? 2 : 4, "the NumPy header's size"));
  const int64_t size = int64_t{size_bytes[0]} | int64_t{size_bytes[1]} << 8 |
                       int64_t{size_bytes[2]} << 16 | int64_t{size_bytes[3]} << 24;
  // Before so much is allocated.
  if (size > kNpyHeaderBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": byte 8: NumPy header is ", size,
                                                   " bytes, want at most ", kNpyHeaderBytesMax));
  }
  const int64_t begin = source.offset();
  std::string text(static_cast<size_t>(size), '\0');
  TESSERA_RETURN_IF_ERROR(source.ReadExactly(&text[0], text.size(), "the NumPy header"));
  absl::StatusOr<ArrayHeader> header = HeaderParser(text, begin).Parse();
  if (header.ok()) return header;
  return absl::Status(header.status().code(), absl::StrCat(path, ": ", header.status().message()));
}

}  // namespace tessera
