#include "tests/worker/data/files.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {

std::string WriteFile(const std::string& name, absl::string_view bytes) {
  const char* const directory = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(directory != nullptr ? directory : "/tmp") + "/" + name;
  // A file system may wait for the disk where a file is written over.
  std::remove(path.c_str());
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  TESSERA_CHECK(file != nullptr);
  TESSERA_CHECK(std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());
  TESSERA_CHECK(std::fclose(file) == 0);
  return path;
}

std::string Gzip(absl::string_view bytes) {
  z_stream z = {};
  TESSERA_CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&z, bytes.size()) + 64, '\0');
  z.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<unsigned>(bytes.size());
  z.next_out = reinterpret_cast<unsigned char*>(&out[0]);
  z.avail_out = static_cast<unsigned>(out.size());
  TESSERA_CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string BigEndian(uint64_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}

std::string LittleEndian(uint64_t value, int bytes) {
  std::string out = BigEndian(value, bytes);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string Idx(int type, const std::vector<uint32_t>& sizes, absl::string_view values) {
  std::string out = BigEndian(type, 3) + BigEndian(sizes.size(), 1);
  for (const uint32_t size : sizes) out += BigEndian(size, 4);
  out.append(values.data(), values.size());
  return out;
}

std::string Npy(absl::string_view descr, absl::string_view shape, absl::string_view values) {
  std::string header =
      absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  while ((10 + header.size() + 1) % 64 != 0) header.push_back(' ');
  return NpyOfHeader(header + "\n", values);
}

std::string NpyOfHeader(absl::string_view header, absl::string_view values, int version) {
  return absl::StrCat("\x93NUMPY", std::string{static_cast<char>(version), '\0'},
                      LittleEndian(header.size(), version == 1 ? 2 : 4), header, values);
}

std::string CifarRecord(int label, int first) {
  std::string out(1, static_cast<char>(label));
  for (int i = 0; i < 3072; ++i) out.push_back(static_cast<char>(first + i));
  return out;
}

std::vector<float> Row(const Table& table, int64_t row) {
  std::vector<float> out(table.features);
  const int64_t begin = row * table.features;
  if (const auto* u8 = std::get_if<U8Values>(&table.values)) {
    for (int64_t j = 0; j < table.features; ++j) out[j] = (*u8)[begin + j];
  } else if (const auto* f32 = std::get_if<F32Values>(&table.values)) {
    for (int64_t j = 0; j < table.features; ++j) out[j] = (*f32)[begin + j];
  } else {
    const auto& sparse = std::get<SparseValues>(table.values);
    for (int64_t e = sparse.begin[row]; e < sparse.begin[row + 1]; ++e) {
      out[sparse.feature[e]] = sparse.value[e];
    }
  }
  return out;
}

}  // namespace tessera
