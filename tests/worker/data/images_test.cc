#include "worker/data/images.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "tests/worker/data/files.h"
#include "worker/data/dataset.h"
#include "worker/data/load_datasets.h"
#include "worker/data/picture_source.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;
using Rows = std::vector<uint32_t>;

std::string Bytes(const std::string& name) {
  std::ifstream file("tests/worker/data/picture/testdata/" + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A folder in the test's own directory.
std::string Folder(const std::string& name) {
  const std::string here = WriteFile("here", "");
  const std::string path = here.substr(0, here.rfind('/')) + "/" + name;
  mkdir(path.c_str(), 0700);
  return path;
}

// Two classes with five pictures of 14 x 10 and one of 200 x 120, of which one cannot be read.
std::string Pictures(const std::string& name) {
  const std::string root = Folder(name);
  Folder(name + "/bees");
  Folder(name + "/ants");
  for (const char* kind : {"colour.jpg", "palette.png", "grey.jpg"}) {
    WriteFile(name + "/ants/" + kind, Bytes(kind));
  }
  const std::string jpeg = Bytes("colour.jpg");
  WriteFile(name + "/bees/a_truncated.jpg", jpeg.substr(0, jpeg.size() / 2));
  WriteFile(name + "/bees/colour.png", Bytes("colour.png"));
  WriteFile(name + "/bees/large.jpg", Bytes("large.jpg"));
  WriteFile(name + "/bees/.hidden", "x");
  WriteFile(name + "/README", "not a picture, and in no class");
  return root;
}

v1::Data Job(const std::string& folder, const std::string& more) {
  v1::Data data;
  REQUIRE(google::protobuf::TextFormat::ParseFromString("format: 'images' train { features: '" +
                                                            folder + "' } test { features: '" +
                                                            folder + "' } " + more,
                                                        &data));
  return data;
}

const ModelEnds kEnds{192, 2, false, {3, 8, 8}};
constexpr char kForm[] = "resize: 9 crop: 8 ";

Floats Features(const Dataset& data, const Rows& rows, std::optional<uint64_t> epoch = {}) {
  Floats out(rows.size() * data.inputs());
  BatchView view;
  view.features = out.data();
  data.FillBatch(rows, view, 1, epoch);
  return out;
}

std::vector<int32_t> ClassesOf(const Dataset& data, const Rows& rows) {
  std::vector<int32_t> classes(rows.size());
  BatchView view;
  view.classes = classes.data();
  data.FillBatch(rows, view);
  return classes;
}

std::string Refusal(const v1::Data& data, const ModelEnds& ends = kEnds) {
  return Text(LoadDatasets(data, ends).status());
}

const Rows kAll = {0, 1, 2, 3, 4, 5};

TEST_CASE("classes are folders by name, and what cannot be read is the next that can", "[images]") {
  const auto sets = LoadDatasets(Job(Pictures("set"), kForm), kEnds);
  INFO(sets.status().ToString());
  REQUIRE(sets.ok());
  REQUIRE(sets->train.rows() == 6);
  CHECK(sets->train.is_bytes());
  CHECK(ClassesOf(sets->train, kAll) == std::vector<int32_t>{0, 0, 0, 1, 1, 1});
  const Floats rows = Features(sets->train, kAll);
  CHECK(Features(sets->train, {3}) == Features(sets->train, {4}));
  CHECK(Features(sets->train, {4}) != Features(sets->train, {5}));
  CHECK(Features(sets->test, kAll) == rows);
}

TEST_CASE("pictures that are decoded as they are needed are the held ones", "[images]") {
  const std::string more = GENERATE("", "augment { flip: 'horizontal' crop { padding: 1 } }");
  v1::Data data = Job(Pictures("set"), kForm + more);
  const auto held = LoadDatasets(data, kEnds, kDatasetBytesMax, nullptr, {3, 2});
  data.set_memory(1);
  data.set_threads(2);
  const auto stored = LoadDatasets(data, kEnds, kDatasetBytesMax, nullptr, {3, 2});
  REQUIRE(stored.ok());
  CHECK_FALSE(held->train.is_stored());
  REQUIRE(stored->train.is_stored());
  CHECK(stored->train.Sum() == held->train.Sum());
  for (const uint64_t epoch : {0, 1}) {
    stored->train.Expect(kAll, epoch);
    CHECK(Features(stored->train, kAll, epoch) == Features(held->train, kAll, epoch));
  }
  CHECK(ClassesOf(stored->train, {3, 5}) == std::vector<int32_t>{1, 1});
  CHECK(stored->train.status().ok());
}

TEST_CASE("the last picture's stand-in is the first, with its class", "[images]") {
  const std::string root = Pictures("last");
  WriteFile("last/bees/z.jpg", "no picture");
  for (const int64_t memory : {0, 1}) {
    v1::Data data = Job(root, kForm);
    data.set_memory(memory);
    const auto sets = LoadDatasets(data, kEnds);
    REQUIRE(sets.ok());
    CHECK(Features(sets->train, {6}) == Features(sets->train, {0}));
    CHECK(ClassesOf(sets->train, {6}) == std::vector<int32_t>{0});
  }
}

TEST_CASE("a resized crop is drawn anew in each epoch, and evaluations see the middle",
          "[images]") {
  v1::Data data = Job(Pictures("set"), kForm);
  const auto plain = LoadDatasets(data, kEnds);
  data.mutable_augment()->mutable_resized_crop()->set_size(8);
  const auto drawn = LoadDatasets(data, kEnds, kDatasetBytesMax, nullptr, {3, 2});
  REQUIRE(drawn.ok());
  CHECK(drawn->train.is_stored());
  CHECK_FALSE(drawn->test.is_stored());
  drawn->train.Expect(kAll, 0);
  const Floats first = Features(drawn->train, kAll, 0);
  CHECK(first == Features(drawn->train, kAll, 0));
  CHECK(first != Features(drawn->train, kAll, 1));
  CHECK(Features(drawn->train, kAll) == Features(plain->train, kAll));
  CHECK(drawn->train.Sum() == plain->train.Sum());
}

TEST_CASE("a list names pictures and classes", "[images]") {
  const std::string root = Pictures("set");
  const std::string list = WriteFile(
      "list.txt", "set/bees/large.jpg 1\nset/ants/grey.jpg\t0\n" + root + "/ants/colour.jpg   1\n");
  const auto sets = LoadDatasets(Job(list, kForm), kEnds);
  INFO(sets.status().ToString());
  REQUIRE(sets.ok());
  CHECK(ClassesOf(sets->train, {0, 1, 2}) == std::vector<int32_t>{1, 0, 1});
  const auto folder = LoadDatasets(Job(root, kForm), kEnds);
  CHECK(Features(sets->train, {0, 1, 2}) == Features(folder->train, {5, 1, 0}));
}

TEST_CASE("grey rows are the brightness of colours", "[images]") {
  const ModelEnds ends{64, 2, false, {1, 8, 8}};
  const auto grey = LoadDatasets(Job(Pictures("set"), kForm), ends);
  REQUIRE(grey.ok());
  const auto colour = LoadDatasets(Job(Pictures("set"), kForm), kEnds);
  // A grey picture has one brightness in all three channels.
  const Floats three = Features(colour->train, {1});
  CHECK(Features(grey->train, {1}) == Floats(three.begin(), three.begin() + 64));
  const Floats rgb = Features(colour->train, {5}), one = Features(grey->train, {5});
  for (int i = 0; i < 64; ++i) {
    const float brightness = 0.299f * rgb[i] + 0.587f * rgb[64 + i] + 0.114f * rgb[128 + i];
    CHECK(std::abs(one[i] - brightness) < 1.6f / 255);
  }
}

TEST_CASE("what folders and lists must be is said where they are not", "[images]") {
  const std::string root = Pictures("set");
  CHECK(Refusal(Job(root, kForm), {192, 3, false, {3, 8, 8}}) ==
        root + ": has 2 class folders (ants, bees), want 3, one for each class of the model");
  v1::Data data = Job(root, kForm);
  const std::string other = Folder("other");
  Folder("other/ants");
  Folder("other/wasps");
  data.mutable_test()->set_features(0, other);
  CHECK(Refusal(data) == other +
                             ": class folders are ants, wasps (2), want ants, bees (2), as the "
                             "first folder of data.train has");
  data.mutable_test()->set_features(0, root + "/nowhere");
  CHECK(LoadDatasets(data, kEnds).status().code() == absl::StatusCode::kNotFound);
  const std::string loose = Folder("loose");
  WriteFile("loose/a.PNG", Bytes("colour.png"));
  CHECK(Refusal(Job(loose, kForm)).find("a.PNG: is a picture beside the class folders") !=
        std::string::npos);
  const std::string empty = Folder("empty");
  Folder("empty/a");
  Folder("empty/b");
  CHECK(Refusal(Job(empty, kForm)) == empty + ": has no pictures, want at least one");
  Folder("empty/a/deeper");
  CHECK(Refusal(Job(empty, kForm)).find("deeper: is a folder within that of a class") !=
        std::string::npos);
  const auto list = [&](const std::string& text) {
    return Refusal(Job(WriteFile("bad.txt", text), kForm));
  };
  CHECK(list("set/ants/grey.jpg 0\nset/ants/grey.jpg 2\n")
            .find("bad.txt:2: label is \"2\", want 0 to 1") != std::string::npos);
  CHECK(list("set/ants/grey.jpg\n").find("want a path and a label") != std::string::npos);
  CHECK(list("set/ants/none.jpg 1\n").find("bad.txt:1: ") != std::string::npos);
  CHECK(list("set/ants 1\n").find("is a folder, want a picture") != std::string::npos);
}

TEST_CASE("a set without one picture that can be read is refused with the reason", "[images]") {
  const std::string root = Pictures("set");
  CHECK(Refusal(Job(root, ""))
            .find("ants/colour.jpg: is 14 x 10 pixels, want 8 x 8, as "
                  "model.input has; set data.resize and data.crop; no other") != std::string::npos);
  CHECK(Refusal(Job(root, "crop: 8"), {192, 2, false, {3, 8, 8}}).empty());
  CHECK(Refusal(Job(root, "resize: 7 crop: 8")).find("resized 9 x 7, want at least 8 x 8") !=
        std::string::npos);
  CHECK(Refusal(Job(root, kForm), {192, 2, false, {192}}).find("model.input: is [192]") == 0);
}

TEST_CASE("pictures beyond the memory there is are refused with what to do", "[images]") {
  const absl::Status status = LoadDatasets(Job(Pictures("set"), kForm), kEnds, 1500).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(Text(status).find("with data.memory what is more than that is read") != std::string::npos);
}

TEST_CASE("all pictures that cannot be read are found, and named", "[images]") {
  const std::string root = Pictures("many");
  WriteFile("many/ants/huge.png", Bytes("gigantic.png"));
  WriteFile("many/bees/cmyk.jpg", Bytes("cmyk.jpg"));
  TableSpec spec = TableSpecOf(kEnds);
  const auto bad = FindBadPictures({root}, spec, {9, 8, 2}, 2);
  REQUIRE(bad.ok());
  CHECK(bad->count == 3);
  REQUIRE(bad->messages.size() == 2);
  CHECK(bad->messages[0].find(root + "/ants/huge.png: is 60000 x 60000 pixels") == 0);
  CHECK(bad->messages[1].find(root + "/bees/a_truncated.jpg: is a JPEG picture that does not "
                                     "decode: ") == 0);
}

TEST_CASE("sizes are those of torchvision's Resize and CenterCrop", "[images]") {
  PictureForm form;
  form.height = form.width = form.crop = 224;
  form.resize = 256;
  const auto cut = [&](int64_t height, int64_t width) {
    const PictureCut made = *CutOf(form, height, width, 0, std::nullopt);
    return std::vector<int64_t>{made.height, made.width, made.taken.top, made.taken.left};
  };
  CHECK(cut(375, 500) == std::vector<int64_t>{256, 341, 16, 58});
  CHECK(cut(500, 375) == std::vector<int64_t>{341, 256, 58, 16});
  CHECK(cut(256, 259) == std::vector<int64_t>{256, 259, 16, 18});
  CHECK(cut(10, 1000) == std::vector<int64_t>{256, 25600, 16, 12688});
}

}  // namespace
}  // namespace tessera
