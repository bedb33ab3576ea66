#include "common/config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

// Leaves the parser early; caught in ParseYaml.
struct Refusal {
  Position at;
  std::string message;
};

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(absl::string_view text, int source, YamlNode* root)
      : lines_(absl::StrSplit(text, '\n')), source_(source), root_(root) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) Refuse(mark, "a second document starts here, want one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Place(NewNode(YamlNode::Kind::kNull, mark), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    RefuseTag(mark, tag);
    if (tag == "!") RefuseOpenQuote(mark);
    YamlNode node = NewNode(YamlNode::Kind::kScalar, mark);
    CountText(node.at, text.size());
    node.text = text;
    node.quoted = tag == "!";
    Place(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) Refuse(mark, "an alias stands within its own anchor");
    CountCopy(PositionAt(mark), it->second, levels_.size());
    Place(it->second, 0);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Level {
    YamlNode node;
    YAML::anchor_t anchor;
  };

  Position PositionAt(const YAML::Mark& mark) const {
    return {source_, mark.line + 1, mark.column + 1};
  }
  [[noreturn]] void Refuse(const YAML::Mark& mark, std::string message) const {
    throw Refusal{PositionAt(mark), std::move(message)};
  }
  void RefuseTag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    Refuse(mark, absl::StrCat("got the tag ", Quoted(tag), ", want no tags"));
  }

  // yaml-cpp takes the end of the file for the missing quote, and what stood between for text.
  void RefuseOpenQuote(const YAML::Mark& mark) const {
    auto line = static_cast<size_t>(mark.line);
    auto column = static_cast<size_t>(mark.column);
    SkipProperties(&line, &column);
    if (line >= lines_.size()) return;
    const char quote = lines_[line][column];
    if (quote != '"' && quote != '\'') return;
    for (++column; line < lines_.size(); ++line, column = 0) {
      const absl::string_view text = lines_[line];
      for (; column < text.size(); ++column) {
        if (quote == '"' && text[column] == '\\') {
          ++column;
        } else if (text[column] == quote) {
          const bool is_doubled =
              quote == '\'' && column + 1 < text.size() && text[column + 1] == quote;
          if (!is_doubled) return;
          ++column;
        }
      }
    }
    Refuse(mark, "the quote that begins here is not closed");
  }
  // To where a value itself begins, behind its anchor and tag, which may stand on lines before it; the last line's
  // end: there is none.
  void SkipProperties(size_t* line, size_t* column) const {
    for (; *line < lines_.size(); ++*line, *column = 0) {
      const absl::string_view text = lines_[*line];
      while (*column < text.size() && text[*column] != '#') {
        const bool is_property = text[*column] == '&' || text[*column] == '!';
        if (!is_property && !IsBlank(text[*column])) return;
        ++*column;
        while (is_property && *column < text.size() && !IsBlank(text[*column])) ++*column;
      }
    }
  }

  void CheckDepth(Position at, int depth) const {
    if (depth >= kYamlDepthMax) {
      throw Refusal{at, absl::StrCat("more than ", kYamlDepthMax, " levels deep")};
    }
  }
  void CountValue(Position at) {
    if (++values_ > kYamlValuesMax) {
      throw Refusal{at, absl::StrCat("more than ", kYamlValuesMax, " values, aliases expanded")};
    }
  }
  void CountText(Position at, size_t bytes) {
    text_bytes_ += bytes;
    if (text_bytes_ > kYamlTextBytesMax) {
      throw Refusal{
          at, absl::StrCat("more than ", kYamlTextBytesMax, " bytes of text, aliases expanded")};
    }
  }
  // Of `node` below `depth` maps and lists: an alias may bring a deep value to a deep place.
  void CountCopy(Position at, const YamlNode& node, int depth) {
    if (!node.items.empty()) CheckDepth(at, depth);
    CountValue(at);
    CountText(at, node.text.size());
    for (const YamlKey& key : node.keys) CountText(at, key.name.size());
    for (const YamlNode& item : node.items) CountCopy(at, item, depth + 1);
  }

  YamlNode NewNode(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.at = PositionAt(mark);
    CountValue(node.at);
    return node;
  }

  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    RefuseTag(mark, tag);
    CheckDepth(PositionAt(mark), levels_.size());
    levels_.push_back({NewNode(kind, mark), anchor});
  }
  void Close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    Place(std::move(level.node), level.anchor);
  }

  // A finished value goes to the map or list that is open.
  void Place(YamlNode node, YAML::anchor_t anchor) {
    if (anchor != 0) {
      CountCopy(node.at, node, levels_.size());
      anchors_[anchor] = node;
    }
    if (levels_.empty()) {
      *root_ = std::move(node);
      return;
    }
    YamlNode& parent = levels_.back().node;
    if (parent.is_map() && parent.keys.size() == parent.items.size()) {
      if (!node.is_scalar()) {
        throw Refusal{node.at, absl::StrCat("got ", DescribeNode(node), " as a key, want a name")};
      }
      parent.keys.push_back({std::move(node.text), node.at});
      return;
    }
    // yaml-cpp places an empty value wherever the next token is: its key is nearer to the truth.
    if (parent.is_map() && node.is_null()) node.at = parent.keys.back().at;
    parent.items.push_back(std::move(node));
  }

  const std::vector<absl::string_view> lines_;
  const int source_;
  YamlNode* const root_;
  int documents_ = 0;
  int values_ = 0;
  size_t text_bytes_ = 0;
  std::vector<Level> levels_;
  std::map<YAML::anchor_t, YamlNode> anchors_;
};

// YAML has no control characters, and yaml-cpp takes 0x04 for the end of the file. What is not UTF-8 it lets pass,
// and a protobuf string does not.
bool HasOnlyText(absl::string_view text, int source, JobErrors* errors) {
  const size_t valid = Utf8PrefixBytes(text);
  int line = 1;
  int column = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (i == valid || (byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7F) {
      errors->Add({source, line, column}, "",
                  absl::StrCat("got the byte 0x", absl::Hex(byte, absl::kZeroPad2),
                               ", want UTF-8 text without control characters"));
      return false;
    }
    ++column;
    if (c == '\n') {
      ++line;
      column = 1;
    }
  }
  return true;
}

// The first tab that indents a line up to `line_last`, counted from 1. The parser stumbles over it later, and in
// other words.
std::optional<Position> IndentingTab(absl::string_view text, int source, int line_last) {
  int line = 0;
  for (const absl::string_view row : absl::StrSplit(text, '\n')) {
    if (++line > line_last) break;
    const size_t first = row.find_first_not_of(' ');
    if (first == absl::string_view::npos || row[first] != '\t') continue;
    return Position{source, line, static_cast<int>(first) + 1};
  }
  return std::nullopt;
}

}  // namespace

YamlNode ScalarNode(absl::string_view text, Position at) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = std::string(text);
  node.at = at;
  return node;
}

YamlNode MapNode(absl::string_view name, YamlNode value) {
  YamlNode node;
  node.kind = YamlNode::Kind::kMap;
  node.at = value.at;
  node.keys.push_back({std::string(name), value.at});
  node.items.push_back(std::move(value));
  return node;
}

std::string DescribeNode(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return Quoted(node.text);
    case YamlNode::Kind::kList:
      return node.items.empty() ? "an empty list" : "a list";
    case YamlNode::Kind::kMap:
      return node.items.empty() ? "an empty map" : "a map";
  }
  return "";
}

bool ParseYaml(absl::string_view text, int source, YamlNode* root, JobErrors* errors) {
  *root = YamlNode();
  if (text.size() > kJobFileBytesMax) {
    errors->Add({source, 0, 0}, "",
                absl::StrCat("more than ", kJobFileBytesMax, " bytes, want a job file"));
    return false;
  }
  if (!HasOnlyText(text, source, errors)) return false;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(text, source, root);
    while (parser.HandleNextDocument(builder)) {
    }
    return true;
  } catch (const Refusal& refusal) {
    errors->Add(refusal.at, "", refusal.message);
  } catch (const YAML::Exception& e) {
    if (const auto tab = IndentingTab(text, source, e.mark.line + 1)) {
      errors->Add(*tab, "", "got a tab, want spaces: YAML takes no other indent");
      return false;
    }
    errors->Add({source, e.mark.line + 1, e.mark.column + 1}, "",
                absl::StrCat("not YAML: ", e.msg));
  } catch (const std::exception& e) {
    errors->Add({source, 0, 0}, "", absl::StrCat("not YAML: ", e.what()));
  }
  return false;
}

}  // namespace tessera
