#include "common/config/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

// Thrown to leave the parser early; caught in ParseYaml.
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

  // Refuses a quote that is never closed: yaml-cpp takes the end of the file for the missing quote, and what stood
  // between for text.
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
  // Moves to where a value itself begins, behind its anchor and tag, which may stand on lines before it; the last
  // line's end: there is none.
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
  // Counts the copy of `node` that stands below `depth` maps and lists: an alias may bring a deep value to a deep
  // place.
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

  // Gives a finished value to the map or list that is open.
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
      if (node.text == "<<" && !node.quoted) {
        throw Refusal{node.at,
                      "got the merge key \"<<\", want each key where it holds: an alias stands for "
                      "one whole value"};
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

// Whether the text has only what YAML may have: no control characters (yaml-cpp takes 0x04 for the end of the
// file), and UTF-8 alone, as a protobuf string wants it.
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

// What to do about what the parser says first; nothing where its own words are plain.
absl::string_view AdviceFor(absl::string_view message) {
  // What it stumbles over may stand a line below the mistake, and be the consequence of several.
  constexpr std::pair<absl::string_view, absl::string_view> kAdvice[] = {
      {"illegal map value",
       "want a blank after each colon, here and on the line before, quotes around text with `: `, "
       "and the same indent for all keys of a map"},
      {"end of map not found",
       "want the same indent as the other keys of this map, and nothing behind a closing quote"},
      {"end of sequence not found",
       "want the same indent as the other items of this list, or as the other keys of its item"},
      {"end of map flow not found", "want a } for each {, and a comma between keys"},
      {"end of sequence flow not found", "want a ] for each [, and a comma between items"},
      {"illegal flow end", "want no } without its {, and no ] without its ["},
      {"illegal block entry", "want the first `- ` of a list on a line of its own"},
      {"unknown token", "want quotes around text that begins with @, % or `"},
      {"unexpected character in block scalar", "want quotes around text that begins with | or >"},
      {"alias not found after *", "want quotes around text that begins with *"},
      {"anchor not found after &", "want quotes around text that begins with &"},
      {"unknown escape character", "want \\\\ for a backslash in double quotes, or single quotes"},
  };
  for (const auto& [begin, advice] : kAdvice) {
    if (absl::StartsWith(message, begin)) return advice;
  }
  return "";
}

// The column of a tab that indents `row`, counted from 1; 0: none does.
int IndentingTab(absl::string_view row) {
  const size_t first = row.find_first_not_of(' ');
  const bool is_tab = first != absl::string_view::npos && row[first] == '\t';
  return is_tab ? static_cast<int>(first) + 1 : 0;
}

// Whether the row is blank, or a comment.
bool SaysNothing(absl::string_view row) {
  const size_t first = row.find_first_not_of(" \t\r");
  return first == absl::string_view::npos || row[first] == '#';
}

// Adds the parser's error. Where a tab indents it is the reason: it is legal in some places and in others only
// where the parser stumbles: on the line itself, or on the one before, when it has taken both for one text.
void AddParserError(absl::string_view text, int source, const YAML::Exception& e,
                    JobErrors* errors) {
  const std::vector<absl::string_view> rows = absl::StrSplit(text, '\n');
  const int line = e.mark.line;
  const auto tab_on = [&](int i) {
    return i >= 0 && i < static_cast<int>(rows.size()) ? IndentingTab(rows[i]) : 0;
  };
  if (const int column = tab_on(line); column > 0) {
    errors->Add({source, line + 1, column}, "",
                absl::StrCat("got a tab, want spaces: YAML takes no other indent (", e.msg, ")"));
    return;
  }
  std::string message = absl::StrCat("not YAML: ", e.msg);
  const absl::string_view advice = AdviceFor(e.msg);
  if (!advice.empty()) absl::StrAppend(&message, "; ", advice);
  int before = std::min(line, static_cast<int>(rows.size())) - 1;
  while (before >= 0 && SaysNothing(rows[before])) --before;
  if (const int column = tab_on(before); column > 0) {
    absl::StrAppend(&message, "; and spaces for the tab at ", before + 1, ":", column,
                    ", if it is to indent");
  }
  errors->Add({source, line + 1, e.mark.column + 1}, "", message);
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
    AddParserError(text, source, e, errors);
  } catch (const std::exception& e) {
    errors->Add({source, 0, 0}, "", absl::StrCat("not YAML: ", e.what()));
  }
  return false;
}

}  // namespace tessera
