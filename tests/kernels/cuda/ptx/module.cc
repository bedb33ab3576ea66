#include "tests/kernels/cuda/ptx/module.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <utility>

#include "tests/kernels/cuda/ptx/operations.h"

namespace tessera::ptx {
namespace {

[[noreturn]] void Refuse(int line, const std::string& what) {
  throw std::runtime_error("PTX, line " + std::to_string(line) + ": " + what);
}

std::string Trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

bool StartsWith(const std::string& text, const std::string& with) {
  return text.compare(0, with.size(), with) == 0;
}

// At commas that no bracket holds.
std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char c : text) {
    depth += c == '{' || c == '[' ? 1 : (c == '}' || c == ']' ? -1 : 0);
    if (c == ',' && depth == 0) {
      parts.push_back(Trimmed(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!Trimmed(part).empty()) parts.push_back(Trimmed(part));
  return parts;
}

// Of "f32", "b8" and the like; 0 for what is none.
int BytesOf(const std::string& type) {
  if (type.size() < 2 || std::strchr("usbf", type[0]) == nullptr) return 0;
  const int bits = std::atoi(type.c_str() + 1);
  return bits % 8 == 0 ? bits / 8 : 0;
}

// "mov.b64 %rd1, {%r1, %r2}" and back.
void Pack(uint64_t (*slots)[kWarp], uint32_t lanes, const Instruction& i) {
  const int bits = 8 * i.bytes;
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    uint64_t packed = 0;
    for (int k = 1; k < i.count; ++k) {
      packed |= (slots[i.o[k]][lane] & (~uint64_t{0} >> (64 - bits))) << bits * (k - 1);
    }
    slots[i.o[0]][lane] = packed;
  }
}

void Unpack(uint64_t (*slots)[kWarp], uint32_t lanes, const Instruction& i) {
  const int bits = 8 * i.bytes;
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    const uint64_t packed = slots[i.o[i.count - 1]][lane];
    for (int k = 0; k + 1 < i.count; ++k) {
      slots[i.o[k]][lane] = packed >> bits * k & (~uint64_t{0} >> (64 - bits));
    }
  }
}

struct Variable {  // .param or .shared
  std::string name;
  int64_t alignment = 1;
  int64_t bytes = 0;
};

// ".align 8 .b8 name[32]" or ".u64 name"
Variable ParseVariable(std::string text, int line) {
  Variable variable;
  if (StartsWith(text, ".align ")) {
    char* end = nullptr;
    variable.alignment = std::strtoll(text.c_str() + 7, &end, 10);
    text = Trimmed(end);
  }
  const auto space = text.find_first_of(" \t");
  const int bytes = space == std::string::npos ? 0 : BytesOf(text.substr(1, space - 1));
  if (bytes == 0) Refuse(line, "a variable of a type that is not known: " + text);
  variable.name = Trimmed(text.substr(space));
  int64_t count = 1;
  if (const auto bracket = variable.name.find('['); bracket != std::string::npos) {
    count = std::atoll(variable.name.c_str() + bracket + 1);
    variable.name.resize(bracket);
  }
  variable.alignment = std::max<int64_t>(variable.alignment, bytes);
  variable.bytes = bytes * count;
  return variable;
}

int64_t Place(const Variable& variable, int64_t* end) {
  const int64_t offset = (*end + variable.alignment - 1) / variable.alignment * variable.alignment;
  *end = offset + variable.bytes;
  return offset;
}

class EntryParser {
 public:
  EntryParser(std::string name) {
    entry_.name = std::move(name);
    entry_.slots.assign(Entry::kSpecials, 0);
    slots_["%tid.x"] = Entry::kThread;
    slots_["%ctaid.x"] = Entry::kBlock;
    slots_["%ntid.x"] = Entry::kThreads;
    slots_["%nctaid.x"] = Entry::kBlocks;
  }

  void AddParameter(const std::string& text, int line) {
    const Variable variable = ParseVariable(text, line);
    addresses_[variable.name] = Place(variable, &entry_.parameter_bytes);
    entry_.parameters.push_back({addresses_[variable.name], variable.bytes});
  }
  void SetThreadsMax(int threads) { entry_.threads_max = threads; }

  // A line of the body, without its comment; empty ones too.
  void AddLine(const std::string& text, int line) {
    if (text.empty() || text == "{" || text == "}" || StartsWith(text, ".pragma")) return;
    if (StartsWith(text, ".reg ")) return;  // Whatever it holds, it has a slot when it is named.
    if (StartsWith(text, ".shared ")) {
      const Variable variable = ParseVariable(Trimmed(text.substr(8, text.size() - 9)), line);
      addresses_[variable.name] = kSharedBegin + Place(variable, &entry_.shared_bytes);
      return;
    }
    if (text.back() == ':') {
      labels_[text.substr(0, text.size() - 1)] = static_cast<int>(entry_.code.size());
      return;
    }
    if (text.back() != ';' || text[0] == '.') Refuse(line, "what this says is not known: " + text);
    AddInstruction(text.substr(0, text.size() - 1), line);
  }

  Entry Finish(int line) {
    for (const auto& [at, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) Refuse(entry_.code[at].line, "no such label: " + label);
      entry_.code[at].target = found->second;
    }
    Instruction last;
    last.kind = Kind::kReturn;
    last.line = line;
    entry_.code.push_back(last);
    entry_.texts.push_back("}");
    return std::move(entry_);
  }

 private:
  int16_t NewSlot(uint64_t value, int line) {
    if (entry_.slots.size() > std::numeric_limits<int16_t>::max()) {
      Refuse(line, "too many registers");
    }
    entry_.slots.push_back(value);
    return static_cast<int16_t>(entry_.slots.size() - 1);
  }

  int16_t SlotOf(const std::string& operand, int line) {
    if (const auto found = slots_.find(operand); found != slots_.end()) return found->second;
    uint64_t value = 0xa5a5a5a5a5a5a5a5u;  // of a register that nobody has set
    if (operand[0] == '%') {
      if (operand.find('.') != std::string::npos) Refuse(line, "no such register: " + operand);
    } else if (const auto found = addresses_.find(operand); found != addresses_.end()) {
      value = static_cast<uint64_t>(found->second);
    } else if (operand.size() == 10 && StartsWith(operand, "0f")) {
      value = std::strtoull(operand.c_str() + 2, nullptr, 16);
    } else if (operand.size() == 18 && StartsWith(operand, "0d")) {
      value = std::strtoull(operand.c_str() + 2, nullptr, 16);
    } else {
      char* end = nullptr;
      value = operand[0] == '-' ? static_cast<uint64_t>(std::strtoll(operand.c_str(), &end, 0))
                                : std::strtoull(operand.c_str(), &end, 0);
      if (end == operand.c_str() || *end != '\0') Refuse(line, "no such operand: " + operand);
    }
    return slots_[operand] = NewSlot(value, line);
  }

  void AddOperand(const std::string& operand, Instruction* to) {
    if (to->count == std::size(to->o)) Refuse(to->line, "more operands than are known");
    to->o[to->count++] = SlotOf(operand, to->line);
  }

  // A register, or those of "{%r1, %r2}".
  void AddOperands(const std::string& operand, Instruction* to) {
    if (operand[0] != '{') return AddOperand(operand, to);
    for (const std::string& each : Split(operand.substr(1, operand.size() - 2))) {
      AddOperand(each, to);
    }
  }

  // "[%rd1+-4]", "[name+8]"
  void SetAddress(const std::string& operand, Instruction* to) {
    if (operand[0] != '[') Refuse(to->line, "want an address: " + operand);
    std::string name = operand.substr(1, operand.size() - 2);
    if (const auto plus = name.find('+'); plus != std::string::npos) {
      to->offset = std::atoll(name.c_str() + plus + 1);
      name.resize(plus);
    }
    to->base = SlotOf(name, to->line);
  }

  void AddInstruction(std::string text, int line) {
    Instruction i;
    i.line = line;
    entry_.texts.push_back(text);
    if (text[0] == '@') {
      const auto space = text.find_first_of(" \t");
      i.negated = text[1] == '!';
      i.predicate = SlotOf(text.substr(i.negated ? 2 : 1, space - (i.negated ? 2 : 1)), line);
      text = Trimmed(text.substr(space));
    }
    const auto space = text.find_first_of(" \t");
    const std::string name = text.substr(0, space);
    i.cost = CostOf(name);
    const std::vector<std::string> operands =
        Split(space == std::string::npos ? "" : text.substr(space));
    if (name == "ret") {
      i.kind = Kind::kReturn;
    } else if (name == "bra" || name == "bra.uni") {
      i.kind = Kind::kBranch;
      branches_.emplace_back(static_cast<int>(entry_.code.size()), operands.at(0));
    } else if (name == "bar.sync" || name == "barrier.sync") {
      if (operands.size() != 1 || operands[0] != "0") {
        Refuse(line, "a barrier of some threads only");
      }
      i.kind = Kind::kBarrier;
    } else if (StartsWith(name, "ld.") || StartsWith(name, "st.")) {
      AddAccess(name, operands, &i);
    } else if (name == "shfl.sync.down.b32") {
      i.kind = Kind::kShuffleDown;
      const auto bar = operands.at(0).find('|');
      AddOperand(operands[0].substr(0, bar), &i);
      for (int k = 1; k < 5; ++k) AddOperand(operands.at(k), &i);
      AddOperand(bar == std::string::npos ? "%_" : operands[0].substr(bar + 1), &i);
    } else if (name == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") {
      i.kind = Kind::kProduct;
      for (const std::string& operand : operands) AddOperands(operand, &i);
      if (i.count != std::size(i.o)) Refuse(line, "a product of other factors");
    } else {
      i.run = FindOperation(name);
      for (const std::string& operand : operands) AddOperands(operand, &i);
      const bool packs = operands.size() == 2 && operands[1][0] == '{';
      if (StartsWith(name, "mov.b") && i.count > 2) {
        i.run = packs ? Pack : Unpack;
        i.bytes = static_cast<int8_t>(BytesOf(name.substr(4)) / (i.count - 1));
      }
      if (i.run == nullptr) Refuse(line, "an instruction that is not known: " + name);
    }
    entry_.code.push_back(i);
  }

  // "ld.global.v4.f32 {...}, [...]", "st.shared.u8 [...], %rs1"
  void AddAccess(const std::string& name, const std::vector<std::string>& operands,
                 Instruction* i) {
    const bool loads = name[0] == 'l';
    i->kind = loads ? Kind::kLoad : Kind::kStore;
    std::string rest = name.substr(3);
    const auto take = [&rest](const std::string& word) {
      if (!StartsWith(rest, word)) return false;
      rest = rest.substr(word.size());
      return true;
    };
    if (take("global.")) {
      i->space = Space::kGlobal;
    } else if (take("shared.")) {
      i->space = Space::kShared;
    } else if (loads && take("param.")) {
      i->space = Space::kParam;
    } else {
      Refuse(i->line, "memory of a space that is not known: " + name);
    }
    const int count = take("v2.") ? 2 : (take("v4.") ? 4 : 1);
    i->bytes = static_cast<int8_t>(BytesOf(rest));
    i->extends_sign = rest[0] == 's';
    if (i->bytes == 0 || operands.size() != 2) {
      Refuse(i->line, "an access that is not known: " + name);
    }
    AddOperands(operands[loads ? 0 : 1], i);
    if (i->count != count) Refuse(i->line, name + " has another number of values");
    SetAddress(operands[loads ? 1 : 0], i);
  }

  Entry entry_;
  std::map<std::string, int16_t> slots_;
  std::map<std::string, int64_t>
      addresses_;  // of parameters and shared variables, each in its space
  std::map<std::string, int> labels_;
  std::vector<std::pair<int, std::string>> branches_;
};

}  // namespace

std::map<std::string, Entry> ParseModule(const std::string& text) {
  std::map<std::string, Entry> entries;
  std::vector<EntryParser> parser;  // one, or none between entries
  int depth = 0, line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string each = text.substr(at, end - at);
    at = end + 1;
    ++line;
    each = Trimmed(each.substr(0, each.find("//")));
    if (each.empty()) continue;
    if (parser.empty()) {
      if (const auto entry = each.find(".entry "); entry != std::string::npos) {
        parser.emplace_back(Trimmed(each.substr(entry + 7, each.find('(') - entry - 7)));
      } else if (each[0] != '.' || StartsWith(each, ".func") || StartsWith(each, ".global") ||
                 StartsWith(each, ".const")) {
        Refuse(line, "what this says is not known: " + each);
      }
      continue;
    }
    if (depth == 0 && each != "{") {
      if (StartsWith(each, ".param ")) {
        if (each.back() == ',') each.pop_back();
        parser[0].AddParameter(Trimmed(each.substr(7)), line);
      } else if (StartsWith(each, ".maxntid ")) {
        parser[0].SetThreadsMax(std::atoi(each.c_str() + 9));
      } else if (each != ")" && !StartsWith(each, ".minnctapersm ")) {
        Refuse(line, "what this says is not known: " + each);
      }
      continue;
    }
    if (each == "{") ++depth;
    if (each == "}" && --depth == 0) {
      Entry entry = parser[0].Finish(line);
      parser.clear();
      entries[entry.name] = std::move(entry);
      continue;
    }
    parser[0].AddLine(each, line);
  }
  if (!parser.empty()) Refuse(line, "the text ends within an entry");
  return entries;
}

}  // namespace tessera::ptx
