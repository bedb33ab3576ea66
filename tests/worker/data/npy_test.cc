#include "worker/data/npy.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/files.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;

TableSpec Spec(int64_t features, int64_t classes) {
  TableSpec spec;
  spec.features = features;
  spec.classes = classes;
  return spec;
}

std::string TwoLabels() { return WriteFile("labels.npy", Npy("|u1", "(2,)", "\1\2")); }

// Two rows of these two-value rows with labels 1 and 2.
absl::StatusOr<Table> Read(const std::string& features, const TableSpec& spec = Spec(2, 3)) {
  return ReadNpy({WriteFile("features.npy", features)}, {TwoLabels()}, spec);
}

// What is wrong with a file, behind its name.
std::string Wrong(const std::string& features, const TableSpec& spec = Spec(2, 3)) {
  const std::string path = WriteFile("features.npy", "");
  const std::string message = Text(Read(features, spec).status());
  REQUIRE(message.substr(0, path.size() + 2) == path + ": ");
  return message.substr(path.size() + 2);
}

// And with one that has this header, version 1.0, and 4 bytes of values.
std::string WrongHeader(absl::string_view header) { return Wrong(NpyOfHeader(header, "\1\2\3\4")); }

template <typename Number>
uint64_t Bits(Number number) {
  uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof number);
  return bits;
}

// These numbers in a (2, 2) file of this type, little-endian and big-endian, become these values.
template <typename Number>
void CheckType(const std::string& type, const std::vector<Number>& numbers, const Floats& values) {
  CAPTURE(type);
  std::string little, big;
  for (const Number number : numbers) {
    little += LittleEndian(Bits(number), sizeof number);
    big += BigEndian(Bits(number), sizeof number);
  }
  for (const auto& table :
       {Read(Npy("<" + type, "(2, 2)", little)), Read(Npy(">" + type, "(2, 2)", big))}) {
    REQUIRE(table.status() == absl::OkStatus());
    REQUIRE(std::get<F32Values>(table->values) == values);
  }
}

TEST_CASE("u1 values stay u8 and rows of any rank are flat", "[npy]") {
  const auto table = Read(Npy("|u1", "(2, 1, 2)", "\x01\x02\xfe\xff"));
  REQUIRE(table.ok());
  REQUIRE(std::get<U8Values>(table->values) == U8Values{1, 2, 254, 255});
  REQUIRE(std::get<Classes>(table->labels) == Classes{1, 2});
  REQUIRE(table->rows == 2);
  REQUIRE(table->features == 2);
  REQUIRE(table->bytes() == 4 + 8);
}

TEST_CASE("values of every other type become f32 in either byte order", "[npy]") {
  CheckType<int8_t>("i1", {1, -128, -1, 127}, {1, -128, -1, 127});
  CheckType<uint16_t>("u2", {256, 0, 65535, 1}, {256, 0, 65535, 1});
  CheckType<int16_t>("i2", {256, -32768, -1, 1}, {256, -32768, -1, 1});
  CheckType<uint32_t>("u4", {1, 4294967295u, 65536, 0}, {1, 4294967296.f, 65536, 0});
  CheckType<int32_t>("i4", {1, -1, -2147483647 - 1, 65536}, {1, -1, -2147483648.f, 65536});
  CheckType<uint64_t>("u8", {1, ~uint64_t{0}, 65536, 0}, {1, 18446744073709551616.f, 65536, 0});
  // The last one is above the middle of two floats, and at it once it is a double.
  CheckType<int64_t>("i8", {1, -1, INT64_MIN, (int64_t{1} << 60) + (int64_t{1} << 36) + 1},
                     {1, -1, -9223372036854775808.f, 0x1.000002p60f});
  CheckType<uint16_t>("f2", {0x3c00, 0xc000, 0x0001, 0x7bff}, {1, -2, 0x1p-24f, 65504});
  CheckType<float>("f4", {1.5f, -0.1f, 1e-40f, 3e38f}, {1.5f, -0.1f, 1e-40f, 3e38f});
  CheckType<double>("f8", {1.5, -0.1, 1e-300, 3e38}, {1.5f, -0.1f, 0, 3e38f});
}

TEST_CASE("bools become 0 and 1", "[npy]") {
  const auto table = Read(Npy("|b1", "(2, 2)", std::string("\0\1\1\2", 4)));
  REQUIRE(std::get<F32Values>(table->values) == Floats{0, 1, 1, 1});
}

TEST_CASE("a single byte has no order, however it is written", "[npy]") {
  for (const char* const descr : {"|u1", "<u1", ">u1", "=u1", "u1"}) {
    CAPTURE(descr);
    REQUIRE(Read(Npy(descr, "(2, 2)", "\1\2\3\4")).ok());
  }
}

TEST_CASE("features of one dimension are rows of one value", "[npy]") {
  const auto table = Read(Npy("|i1", "(2,)", "\5\6"), Spec(1, 3));
  REQUIRE(std::get<F32Values>(table->values) == Floats{5, 6});
}

TEST_CASE("headers of all three versions are read, as Python may write them", "[npy]") {
  const std::string values = "\1\2\3\4";
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), }";
  for (const int version : {1, 2, 3}) {
    REQUIRE(Read(NpyOfHeader(header + " \n", values, version)).ok());
  }
  for (const char* const text : {
           "{'descr':'|u1','fortran_order':False,'shape':(2,2)}",
           "{\"shape\": (2, 2,), \"descr\": \"|u1\", \"fortran_order\": False}\n",
           " \t{ 'fortran_order' :\nFalse , 'shape' : ( 2 ,\r\n2 ) , 'descr' : '|u1' , } \n",
           // Python 2.
           "{'descr': '|u1', 'fortran_order': False, 'shape': (2L, 2L), }\n",
       }) {
    CAPTURE(text);
    REQUIRE(Read(NpyOfHeader(text, values)).ok());
  }
}

TEST_CASE("the order of Fortran is read where it makes no difference, and refused where it does",
          "[npy]") {
  const auto header = [](absl::string_view shape) {
    return absl::StrCat("{'descr': '|u1', 'fortran_order': True, 'shape': ", shape, "}");
  };
  const std::string labels = WriteFile("one_label.npy", Npy("|u1", "(1, 1)", "\1"));
  const std::string row = WriteFile("row.npy", NpyOfHeader(header("(1, 4, 1)"), "\1\2\3\4"));
  REQUIRE(ReadNpy({row}, {labels}, Spec(4, 3)).ok());
  REQUIRE(
      WrongHeader(header("(2, 2)")) ==
      "byte 10: fortran_order is True for shape (2, 2), want False, each row in one piece; save "
      "np.ascontiguousarray(array)");
}

TEST_CASE("a file that does not begin as one of NumPy's is refused with its bytes", "[npy]") {
  REQUIRE(
      Wrong("1.0,2.0,1\n") ==
      "byte 0: header begins with 31 2e 30 2c 32 2e, want 93 4e 55 4d 50 59 (NUMPY), as np.save "
      "writes it");
  REQUIRE(Wrong("PK\3\4 and so on")
              .find("content is a ZIP archive, want data; unpack it; of an .npz save each array "
                    "with np.save") != std::string::npos);
  REQUIRE(
      Wrong(Idx(8, {2, 2}, "\1\2\3\4")).find("seems to be an IDX file: set data.format to idx") !=
      std::string::npos);
  REQUIRE(Wrong("") == "content ends at byte 0, want 6 more for the NumPy header");
  REQUIRE(Wrong("\x93NUMPY\4") == "content ends at byte 7, want 1 more for the NumPy version");
  REQUIRE(Wrong(NpyOfHeader("{}", "", 4)) ==
          "byte 6: NumPy format version is 4.0, want 1.0, 2.0 or 3.0");
  REQUIRE(Wrong(NpyOfHeader("{}", "", 0)).find("version is 0.0") != std::string::npos);
  REQUIRE(Wrong("\x93NUMPY\2\1....").find("version is 2.1") != std::string::npos);
  REQUIRE(Wrong("\x93NUMPY\2" + std::string(1, '\0') + "\xff\xff\xff\xff") ==
          "byte 8: NumPy header is 4294967295 bytes, want at most 65536");
  REQUIRE(Wrong(Npy("|u1", "(2, 2)", "").substr(0, 60)).find("content ends at byte 60, want ") ==
          0);
}

TEST_CASE("a header that is no dict of the three keys is refused with the place", "[npy]") {
  const std::string type = "'descr': '|u1'", order = "'fortran_order': False",
                    shape = "'shape': (2, 2)";
  REQUIRE(WrongHeader("") == "byte 10: header has its end, want a dict, which begins with \"{\"");
  REQUIRE(WrongHeader("[1]") == "byte 10: header has \"[\", want a dict, which begins with \"{\"");
  REQUIRE(WrongHeader("{" + type + ", " + order + "}") ==
          "byte 10: header has no key 'shape', want descr, fortran_order and shape");
  REQUIRE(WrongHeader("{" + type + ", " + shape + "}").find("no key 'fortran_order'") !=
          std::string::npos);
  REQUIRE(WrongHeader("{" + order + ", " + shape + "}").find("no key 'descr'") !=
          std::string::npos);
  REQUIRE(WrongHeader("{" + type + ", 'colour': 1}") ==
          "byte 27: header has the key \"colour\", want descr, fortran_order and shape");
  REQUIRE(WrongHeader("{" + type + ", " + type + "}") ==
          "byte 27: header has the key \"descr\" again, want it once");
  REQUIRE(WrongHeader("{" + type + " " + order + "}") ==
          "byte 26: header has \"\\'\", want \",\" or \"}\" behind a value");
  REQUIRE(WrongHeader("{'descr' '|u1'}") == "byte 19: header has \"\\'\", want \":\" behind a key");
  REQUIRE(WrongHeader("{descr: '|u1'}") == "byte 11: header has \"d\", want a key in quotes");
  REQUIRE(WrongHeader("{'descr: 1}") ==
          "byte 11: header has a text that does not end in its quote, want a key in quotes");
  REQUIRE(WrongHeader("{'descr': 1}") ==
          "byte 20: header has \"1\", want descr's text in quotes, such as '<f4'");
  REQUIRE(WrongHeader("{'fortran_order': false}") ==
          "byte 28: fortran_order is \"false\", want True or False");
  REQUIRE(WrongHeader("{" + type + ", " + order + ", " + shape) ==
          "byte 66: header has its end, want \",\" or \"}\" behind a value");
  REQUIRE(WrongHeader("{" + type + ", " + order + ", " + shape + "} \n;") ==
          "byte 69: header has \";\", want white space up to its end");
}

TEST_CASE("types that are no numbers are refused by what they hold", "[npy]") {
  const std::string numbers =
      "want b1, u1, i1, u2, i2, u4, i4, u8, i8, f2, f4, f8 behind \"<\", \">\" or \"|\"";
  const auto wrong = [](const std::string& descr) {
    return Wrong(Npy(descr, "(2, 2)", "\1\2\3\4"));
  };
  REQUIRE(
      wrong("|O") ==
      "byte 20: descr is \"|O\": Python objects, which would have to be unpickled and never are; "
      "save array.astype(np.float32); " +
          numbers);
  REQUIRE(wrong("<U7").find("descr is \"<U7\": text; save ") != std::string::npos);
  REQUIRE(wrong("|S4").find("descr is \"|S4\": text; save ") != std::string::npos);
  REQUIRE(wrong("<c8").find("descr is \"<c8\": complex numbers; save array.real") !=
          std::string::npos);
  REQUIRE(wrong("<M8[ns]").find("descr is \"<M8[ns]\": times; save array.astype(np.int64)") !=
          std::string::npos);
  REQUIRE(wrong("|V2").find("descr is \"|V2\": raw bytes, a structure or bfloat16; save ") !=
          std::string::npos);
  for (const char* const descr :
       {"<f16", "<f1", "<u3", "<i16", "|b2", "<x4", "", "<", "|u1 ", "<F4"}) {
    CAPTURE(descr);
    REQUIRE(wrong(descr).find("not a type that is read here") != std::string::npos);
  }
  REQUIRE(WrongHeader(
              "{'descr': [('x', '<f4'), ('y', '<i4')], 'fortran_order': False, 'shape': (2,)}") ==
          "byte 20: descr is a list of fields (a structured array), want numbers; save its fields "
          "as one array");
}

TEST_CASE("values of several bytes say in which order they lie", "[npy]") {
  for (const char* const descr : {"|f4", "=f4", "f4"}) {
    REQUIRE(Wrong(Npy(descr, "(2, 2)", std::string(16, '\0'))) ==
            absl::StrCat("byte 20: descr is \"", descr,
                         "\", which does not say its byte order, want \"<f4\" or \">f4\""));
  }
}

TEST_CASE("what is no shape of rows is refused", "[npy]") {
  const auto wrong = [](absl::string_view shape) {
    return WrongHeader(
        absl::StrCat("{'shape': ", shape, ", 'descr': '|u1', 'fortran_order': False}"));
  };
  REQUIRE(wrong("()") ==
          "byte 20: shape is (), want at least one size, the number of rows; save array.reshape(1, "
          "-1) for one row");
  REQUIRE(wrong("(0, 2)") == "byte 20: shape is (0, 2), want at least one row");
  REQUIRE(wrong("(0,)") == "byte 20: shape is (0,), want at least one row");
  REQUIRE(wrong("(2, 0)") == "byte 20: shape is (2, 0), want at least one value in each row");
  REQUIRE(wrong("(4)") == "byte 20: shape is (4), which is no tuple, want (4,)");
  REQUIRE(wrong("[2, 2]") ==
          "byte 20: header has \"[\", want shape's tuple, which begins with \"(\"");
  REQUIRE(wrong("(-2, 2)") == "byte 21: shape has \"-2\", want an integer from 1");
  REQUIRE(wrong("(2.0, 2)") == "byte 21: shape has \"2.0\", want an integer from 1");
  REQUIRE(wrong("(2, 02)") == "byte 24: shape has \"02\", want an integer from 1");
  REQUIRE(wrong("(2 2)") == "byte 23: header has \"2\", want \",\" or \")\" behind a size");
  REQUIRE(wrong("(2,, 2)") == "byte 23: header has \",\", want a size of shape");
  REQUIRE(wrong(absl::StrCat("(", std::string(65 * 2, '1').replace(1, 1, ","), ",)"))
              .find("shape has \"111") != std::string::npos);
  std::string ones;
  for (int i = 0; i < 65; ++i) ones += "1,";
  REQUIRE(wrong("(" + ones + ")") ==
          "byte 149: shape has more than 64 sizes, want at most so many");
  REQUIRE(Read(NpyOfHeader("{'shape': (2,2," + ones.substr(6) +
                               "), 'descr': '|u1', 'fortran_order': False}",
                           "\1\2\3\4"))
              .ok());
}

TEST_CASE("a shape that does not fit the file is refused before memory is asked for", "[npy]") {
  REQUIRE(Wrong(Npy("<f4", "(2147483648, 2)", ""))
              .find("shape is (2147483648, 2), want at most 2147483647 rows") != std::string::npos);
  REQUIRE(
      Wrong(Npy("<f4", "(2, 4294967296, 4294967296)", ""))
          .find("shape is (2, 4294967296, 4294967296), want at most 16777216 values in a row") !=
      std::string::npos);
  REQUIRE(Wrong(Npy("<f4", "(2, 4096, 4097)", "")).find("want at most 16777216 values in a row") !=
          std::string::npos);
  REQUIRE(Wrong(Npy("<f4", "(99999999999999999999, 2)", ""))
              .find("shape has \"99999999999999999999\", want a size of at most 2147483647") !=
          std::string::npos);
  REQUIRE(
      Wrong(Npy("<f8", "(2147483647, 16777216)", "")) ==
      "content is 128 bytes, want 288230376017494144 for 2147483647 x 16777216 values of 8 bytes "
      "and the header; the file was cut off, or its header is not its own");
  const std::string path = WriteFile("claim.npy.gz", Gzip(Npy("<f4", "(100000000, 2)", "\1\2")));
  REQUIRE(Text(ReadNpy({path}, {TwoLabels()}, Spec(2, 3)).status()).find("content is at most ") !=
          std::string::npos);
}

TEST_CASE("a file that is cut off or goes on is refused, a gzip file too", "[npy]") {
  REQUIRE(Wrong(Npy("|u1", "(2, 2)", "\1\2\3")) ==
          "content is 131 bytes, want 132 for 2 x 2 values of 1 bytes and the header; the file was "
          "cut off, or its header is not its own");
  REQUIRE(
      Wrong(Npy("|u1", "(2, 2)", "\1\2\3\4\5")) ==
      "content is 133 bytes, want 132 for 2 x 2 values of 1 bytes and the header; there is more "
      "in the file than one array");
  const auto zipped = [](const std::string& bytes) {
    const std::string path = WriteFile("features.npy.gz", Gzip(bytes));
    return Text(ReadNpy({path}, {TwoLabels()}, Spec(2, 3)).status());
  };
  REQUIRE(zipped(Npy("|u1", "(2, 2)", "\1\2\3\4")).empty());
  REQUIRE(zipped(Npy("|u1", "(2, 2)", "\1\2\3"))
              .find(": content ends at byte 131, want 1 more for the NumPy values") !=
          std::string::npos);
  REQUIRE(zipped(Npy("|u1", "(2, 2)", "\1\2\3\4\5")).find(": content goes on after byte 132") !=
          std::string::npos);
}

TEST_CASE("values that are no finite float are refused with their row", "[npy]") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [value, text] :
       {std::pair(NAN + 0., "nan"), std::pair(1e39, "1e+39"), std::pair(-infinity, "-inf")}) {
    std::string values;
    for (const double v : {1., 1., 1., value}) values += LittleEndian(Bits(v), 8);
    REQUIRE(Wrong(Npy("<f8", "(2, 2)", values)) ==
            absl::StrCat("row 1 value 1 is ", text, ", want a finite number that fits a float"));
  }
  REQUIRE(Wrong(Npy("<f4", "(2, 2)",
                    std::string(4, '\0') + LittleEndian(0xff800000, 4) + std::string(8, '\0'))) ==
          "row 0 value 1 is -inf, want a finite number that fits a float");
  REQUIRE(Wrong(Npy("<f2", "(2, 2)", std::string("\0\0\0\x7c\0\0\0\0", 8))) ==
          "row 0 value 1 is inf, want a finite number that fits a float");
}

TEST_CASE("a row size that is not the model's input names both", "[npy]") {
  REQUIRE(Wrong(Npy("|u1", "(2, 1, 2)", "\1\2\3\4"), Spec(784, 3)) ==
          "row size is 2 (2 x 1 x 2 with the rows first), want 784, the product of model.input");
}

TEST_CASE("labels are one integer of any type for each row, below the classes", "[npy]") {
  const std::string features = WriteFile("features.npy", Npy("|u1", "(2, 2)", "\1\2\3\4"));
  const std::string path = WriteFile("labels.npy", "");
  const auto read = [&](const std::string& labels) {
    const auto table = ReadNpy({features}, {WriteFile("labels.npy", labels)}, Spec(2, 3));
    if (table.ok()) REQUIRE(std::get<Classes>(table->labels) == Classes{1, 0});
    const std::string text = Text(table.status());
    return text.empty() ? text : text.substr(path.size() + 2);
  };
  for (const int bytes : {1, 2, 4, 8}) {
    for (const std::string kind : {"i", "u"}) {
      const std::string type = absl::StrCat(kind, bytes);
      CAPTURE(type);
      REQUIRE(
          read(Npy("<" + type, "(2,)", LittleEndian(1, bytes) + LittleEndian(0, bytes))).empty());
      REQUIRE(read(Npy(">" + type, "(2, 1)", BigEndian(1, bytes) + BigEndian(0, bytes))).empty());
      const std::string most =
          read(Npy("<" + type, "(2,)", LittleEndian(1, bytes) + std::string(bytes, '\xff')));
      const std::string number =
          kind == "i" ? "-1" : absl::StrCat(~uint64_t{0} >> (64 - 8 * bytes));
      REQUIRE(most ==
              absl::StrCat("row 1: label is ", number, ", want 0 to 2 (the model's classes)"));
    }
  }
  REQUIRE(read(Npy("|b1", "(2,)", std::string("\1\0", 2))).empty());
  REQUIRE(read(Npy("|u1", "(2,)", "\2\3")) ==
          "row 1: label is 3, want 0 to 2 (the model's classes)");
  REQUIRE(read(Npy("|u1", "(3,)", "\1\1\1")) ==
          "has 3 labels, want 2, one for each row of " + features);
  REQUIRE(
      read(Npy("<f4", "(2,)", std::string(8, '\0'))) ==
      "labels have descr \"<f4\" and shape (2,), want an integer type and shape (2,) or (2, 1); "
      "save labels.astype(np.int64)");
  REQUIRE(
      read(Npy("|u1", "(2, 3)", std::string("\0\1\0\1\0\0", 6))) ==
      "labels have descr \"|u1\" and shape (2, 3), want an integer type and shape (2,) or (2, 1); "
      "save one class for each row, labels.argmax(axis=1) if they are one-hot");
  REQUIRE(read(Npy("|O", "(2,)", "").substr(0, 128)).find("Python objects") != std::string::npos);
}

TEST_CASE("a table beyond the memory limit is refused", "[npy]") {
  TableSpec spec = Spec(2, 3);
  spec.bytes_max = 12;
  REQUIRE(Read(Npy("|u1", "(2, 2)", "\1\2\3\4"), spec).ok());
  // Bools take a float each.
  REQUIRE(Wrong(Npy("|b1", "(2, 2)", "\1\1\1\1"), spec) ==
          "needs 24 bytes of memory, want at most 12");
  spec.bytes_max = 24;
  REQUIRE(Read(Npy("|b1", "(2, 2)", "\1\1\1\1"), spec).ok());
}

TEST_CASE("files of many chunks are read whole", "[npy]") {
  std::string values, labels;
  for (int i = 0; i < 200000; ++i) values += LittleEndian(i % 65536, 2);
  for (int i = 0; i < 100000; ++i) labels += LittleEndian(i % 3, 8);
  const auto table =
      ReadNpy({WriteFile("many.npy.gz", Gzip(Npy("<u2", "(100000, 2)", values)))},
              {WriteFile("many_labels.npy", Npy("<i8", "(100000,)", labels))}, Spec(2, 3));
  REQUIRE(table.ok());
  const F32Values& read = std::get<F32Values>(table->values);
  for (int i = 0; i < 200000; ++i) {
    if (read[i] != i % 65536) FAIL("value " << i);
  }
  REQUIRE(std::get<Classes>(table->labels)[99998] == 2);
}

// Rows and labels of two files, and what one file of both would have.
struct TwoFiles {
  std::string a = WriteFile("a.npy", Npy("<f4", "(2, 2)", Floats4(0, 4)));
  std::string b = WriteFile("b.npy", Npy("<f4", "(1, 2)", Floats4(4, 6)));
  std::string a_labels = WriteFile("a_labels.npy", Npy("|u1", "(2,)", std::string("\1\2", 2)));
  std::string b_labels = WriteFile("b_labels.npy", Npy("<i2", "(1, 1)", std::string("\0\0", 2)));

  static std::string Floats4(int begin, int end) {
    std::string bytes;
    for (int i = begin; i < end; ++i) {
      const auto value = static_cast<float>(i);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return bytes;
  }
};

TEST_CASE("rows of several files are one after the other", "[npy]") {
  const TwoFiles files;
  const auto table = ReadNpy({files.a, files.b}, {files.a_labels, files.b_labels}, Spec(2, 3));
  REQUIRE(table.ok());
  REQUIRE(table->rows == 3);
  REQUIRE(Row(*table, 1) == std::vector<float>{2, 3});
  REQUIRE(Row(*table, 2) == std::vector<float>{4, 5});
  REQUIRE(std::get<Classes>(table->labels) == std::vector<int32_t>{1, 2, 0});
  const std::string packed = WriteFile("b.npy.gz", Gzip(Npy("<f4", "(1, 2)", files.Floats4(4, 6))));
  const auto mixed = ReadNpy({files.a, packed}, {files.a_labels, files.b_labels}, Spec(2, 3));
  REQUIRE(mixed.ok());
  REQUIRE(Row(*mixed, 2) == std::vector<float>{4, 5});
}

TEST_CASE("rows of several files stay on disk, and are those that are held", "[npy]") {
  const TwoFiles files;
  TableSpec spec = Spec(2, 3);
  spec.held_bytes_max = 23;  // three rows take 24
  const auto table = ReadNpy({files.a, files.b}, {files.a_labels, files.b_labels}, spec);
  REQUIRE(table.ok());
  const StoredValues& stored = std::get<StoredValues>(table->values);
  std::vector<float> row(2);
  REQUIRE(stored->Read(2, std::nullopt, row.data()).ok());
  REQUIRE(row == std::vector<float>{4, 5});
  REQUIRE(stored->Read(1, std::nullopt, row.data()).ok());
  REQUIRE(row == std::vector<float>{2, 3});
  spec.held_bytes_max = 24;
  const auto held = ReadNpy({files.a, files.b}, {files.a_labels, files.b_labels}, spec);
  REQUIRE(std::holds_alternative<F32Values>(held->values));
  const std::string packed = WriteFile("b.npy.gz", Gzip(Npy("<f4", "(1, 2)", files.Floats4(4, 6))));
  spec.held_bytes_max = 23;
  const auto refused = ReadNpy({files.a, packed}, {files.a_labels, files.b_labels}, spec);
  REQUIRE(Text(refused.status()) ==
          files.a +
              " and 1 more: has 24 bytes of values, and data.memory has room for 23; gunzip " +
              packed + ": rows of compressed files cannot be read one by one");
}

TEST_CASE("several files of one set have rows of one type and shape", "[npy]") {
  const TwoFiles files;
  const auto said = [&](const std::string& descr, const std::string& shape, size_t bytes) {
    const std::string other = WriteFile("other.npy", Npy(descr, shape, std::string(bytes, '\0')));
    return Text(ReadNpy({files.a, other}, {files.a_labels, files.b_labels}, Spec(2, 3)).status());
  };
  REQUIRE(said("<f4", "(1, 2)", 8) == "");
  REQUIRE(said("<f8", "(1, 2)", 16)
              .find("other.npy: rows have descr \"<f8\" and shape [2], want "
                    "descr \"<f4\" and shape [2], as those of ") != std::string::npos);
  REQUIRE(said("|u1", "(1, 2)", 2).find("all files of a set are alike") != std::string::npos);
  REQUIRE(said("<f4", "(1, 2, 1)", 8).find("and shape [2, 1], want ") != std::string::npos);
}

TEST_CASE("each file of labels has those of the features in its place", "[npy]") {
  const TwoFiles files;
  const auto swapped = ReadNpy({files.a, files.b}, {files.b_labels, files.a_labels}, Spec(2, 3));
  REQUIRE(Text(swapped.status()) ==
          files.b_labels + ": has 1 labels, want 2, one for each row of " + files.a);
  TableSpec little = Spec(2, 3);
  little.bytes_max = 35;  // three rows of eight bytes, and their labels
  const auto refused = ReadNpy({files.a, files.b}, {files.a_labels, files.b_labels}, little);
  REQUIRE(absl::IsResourceExhausted(refused.status()));
  REQUIRE(Text(refused.status()) ==
          files.a + " and 1 more: needs 36 bytes of memory, want at most 35");
}

}  // namespace
}  // namespace tessera
