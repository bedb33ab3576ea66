#include "deploy/cli/curves/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

// Sizes in pixels.
constexpr double kWidth = 720, kPlotHeight = 340, kLeft = 76, kRight = 24, kTop = 20, kBelow = 56;
constexpr double kLegendRow = 22, kLegendDash = 26, kLegendGap = 24, kTextSize = 13;
// The width of a character, of the widest of usual fonts.
constexpr double kCharacter = 7.4;
// Longer names, as those of files, are cut in the legend; whoever points at a line sees them whole.
constexpr size_t kLabelMax = 76;
// Longer curves are drawn without a mark at each point, which would hide the line.
constexpr size_t kMarksMax = 40;
constexpr int kColors = 8;

// Colours with a contrast of at least 3 to 1 to their background that colour-blind readers tell apart, too.
constexpr const char* kLight[kColors] = {"#0060a8", "#c44e00", "#00795a", "#a3408a",
                                         "#6f5b00", "#5a4fcf", "#b3202c", "#4d5358"};
constexpr const char* kDark[kColors] = {"#58b0f5", "#ff9a4d", "#3fc79a", "#e893cf",
                                        "#d9c04a", "#a9a0ff", "#ff8088", "#b4bcc4"};
// A ninth line has the first one's colour and is dashed.
constexpr const char* kDashes[] = {"", "7 4", "2 3"};
static_assert(kPlotLinesMax <= kColors * 3, "two lines would look the same");

// Text as XML has it.
std::string Escape(absl::string_view text) {
  std::string out;
  for (const char c : ToPrintable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// A number beside a mark of an axis whose marks are `step` apart: "1.5M", "0.85".
std::string MarkText(double value, double step) {
  static constexpr std::pair<double, const char*> kUnits[] = {
      {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, name] : kUnits) {
    // Marks below ten thousand are read as they are.
    if (std::fabs(value) < unit || (unit == 1e3 && std::fabs(value) < 1e4)) continue;
    return absl::StrFormat("%g%s", std::round(value / unit * 1e4) / 1e4, name);
  }
  // Smaller numbers have an exponent, and no digits that are all 0.
  if (step < 1e-6) return absl::StrFormat("%.4g", value);
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return absl::StrFormat("%.*f", std::min(digits, 9), value);
}

// The digits of values that few decades hold: 1, 2 and 5 of each.
constexpr double kDigits[] = {1, 2, 5};
// Between so many decades or more marks are at powers of ten alone, and with more of these than kMarksOfAxis at
// every second one, third one and so on.
constexpr double kManyDecades = 3;
constexpr int kMarksOfAxis = 6;

// An axis from `begin` to `end`, with marks in between or there.
struct Scale {
  double begin = 0, end = 1;
  bool logarithmic = false;
  std::vector<double> marks;
  // How many digits a mark has follows from it; 0: from the mark itself.
  double step = 0;
  // The pixels of both ends.
  double from = 0, to = 1;

  double At(double value) const {
    const double share = logarithmic ? std::log(value / begin) / std::log(end / begin)
                                     : (value - begin) / (end - begin);
    return from + share * (to - from);
  }
  bool Holds(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
  std::string Text(double mark) const { return MarkText(mark, step > 0 ? step : mark); }
};

// The scale whose marks are 1, 2 or 5 times a power of ten apart, at most six intervals of them, around the values.
Scale LinearScale(double least, double most) {
  if (least == most) {
    const double margin = least == 0 ? 1 : std::fabs(least) * 0.1;
    least -= least > 0 ? std::min(least, margin) : margin;
    most += margin;
  }
  const double rough = (most - least) / kMarksOfAxis;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double each : kDigits) {
    if (each * power >= rough * (1 - 1e-9)) {
      step = each * power;
      break;
    }
  }
  Scale scale;
  scale.begin = std::floor(least / step + 1e-9) * step;
  scale.end = std::ceil(most / step - 1e-9) * step;
  scale.step = step;
  const double first = std::round(scale.begin / step), last = std::round(scale.end / step);
  for (double mark = first; mark <= last; ++mark) scale.marks.push_back(mark * step);
  return scale;
}

// The scale from one mark to another around the values, which are more than 0.
Scale LogScale(double least, double most) {
  Scale scale;
  scale.logarithmic = true;
  const bool has_many = most / least >= std::pow(10, kManyDecades);
  const double low = std::floor(std::log10(least) + 1e-9);
  const double high = std::ceil(std::log10(most) - 1e-9);
  const double stride = std::ceil((high - low) / kMarksOfAxis);
  std::vector<double> marks;
  for (double decade = low; decade <= high; decade += has_many ? stride : 1) {
    for (const double digit : kDigits) {
      if (digit == 1 || !has_many) marks.push_back(digit * std::pow(10, decade));
    }
  }
  // A last decade that the stride leaves out.
  if (marks.back() < most) marks.push_back(std::pow(10, high));
  // The innermost marks that have all values between them.
  size_t first = 0, last = marks.size() - 1;
  while (first + 1 < last && marks[first + 1] <= least * (1 + 1e-9)) ++first;
  while (last > first + 1 && marks[last - 1] >= most * (1 - 1e-9)) --last;
  scale.marks.assign(marks.begin() + first, marks.begin() + last + 1);
  scale.begin = scale.marks.front();
  scale.end = scale.marks.back();
  return scale;
}

class Picture {
 public:
  Picture(const std::vector<PlotLine>& lines, const PlotAxis& x, const PlotAxis& y)
      : lines_(lines), x_axis_(x), y_axis_(y) {}

  std::string Draw() {
    Measure();
    const std::string legend = Legend();
    const double height = legend_end_ + 10;
    std::string text = absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" "
        "height=\"%g\" "
        "role=\"img\" aria-label=\"%s over %s\">\n",
        kWidth, height, kWidth, height, Escape(y_axis_.title), Escape(x_axis_.title));
    absl::StrAppend(&text, Style());
    absl::StrAppendFormat(&text, "<rect class=\"paper\" width=\"%g\" height=\"%g\"/>\n", kWidth,
                          height);
    absl::StrAppend(&text, Axes());
    for (size_t i = 0; i < lines_.size(); ++i) absl::StrAppend(&text, Line(i));
    absl::StrAppend(&text, legend, "</svg>\n");
    return text;
  }

 private:
  static constexpr double kBottom = kTop + kPlotHeight;

  void Measure() {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    double least_x = kNone, least_y = kNone, most_x = -kNone, most_y = -kNone;
    // Which points have a place depends on it.
    x_.logarithmic = x_axis_.logarithmic;
    y_.logarithmic = y_axis_.logarithmic;
    for (const PlotLine& line : lines_) {
      for (const PlotPoint& point : line.points) {
        if (!HasPlace(point)) continue;
        least_x = std::min(least_x, point.x);
        most_x = std::max(most_x, point.x);
        least_y = std::min(least_y, point.y);
        most_y = std::max(most_y, point.y);
      }
    }
    // Progress begins at 0, and ends where the longest line does.
    x_ = x_axis_.logarithmic ? LogScale(least_x, most_x)
                             : LinearScale(std::min(0.0, least_x), most_x);
    if (!x_.logarithmic && most_x > 0) {
      x_.end = most_x;
      while (x_.marks.back() > x_.end * (1 + 1e-9)) x_.marks.pop_back();
    }
    y_ = y_axis_.logarithmic ? LogScale(least_y, most_y) : LinearScale(least_y, most_y);
    x_.from = kLeft;
    x_.to = kWidth - kRight;
    y_.from = kBottom;
    y_.to = kTop;
  }

  bool HasPlace(const PlotPoint& point) const { return x_.Holds(point.x) && y_.Holds(point.y); }

  static std::string Style() {
    std::string light, dark;
    for (int i = 0; i < kColors; ++i) {
      absl::StrAppend(&light, "--c", i, ":", kLight[i], ";");
      absl::StrAppend(&dark, "--c", i, ":", kDark[i], ";");
    }
    std::string text = absl::StrCat(
        "<style>\nsvg{--paper:#ffffff;--ink:#24292f;--grid:#d8dee4;", light,
        "}\n@media (prefers-color-scheme: dark){svg{--paper:#0d1117;--ink:#d1d7de;--grid:#30363d;",
        dark, "}}\n.paper{fill:var(--paper)}\ntext{fill:var(--ink);font:", kTextSize,
        "px system-ui,sans-serif}\n.grid{stroke:var(--grid);stroke-width:1}\n"
        ".axis{stroke:var(--ink);stroke-width:1}\n"
        ".line{fill:none;stroke-width:2;stroke-linejoin:round}\n");
    for (int i = 0; i < kColors; ++i) {
      absl::StrAppendFormat(&text, ".s%d{stroke:var(--c%d)}.f%d{fill:var(--c%d)}\n", i, i, i, i);
    }
    return absl::StrCat(text, "</style>\n");
  }

  std::string Axes() const {
    std::string text;
    for (const double mark : y_.marks) {
      const double at = y_.At(mark);
      absl::StrAppendFormat(
          &text,
          "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
          "text-anchor=\"end\">%s</text>\n",
          kLeft, at, kWidth - kRight, kLeft - 8, at + 4, y_.Text(mark));
    }
    for (const double mark : x_.marks) {
      const double at = x_.At(mark);
      absl::StrAppendFormat(&text,
                            "<path class=\"axis\" d=\"M%.1f %.1fv5\"/><text x=\"%.1f\" y=\"%.1f\" "
                            "text-anchor=\"middle\">%s</text>\n",
                            at, kBottom, at, kBottom + 20, x_.Text(mark));
    }
    absl::StrAppendFormat(&text,
                          "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\" fill=\"none\"/>\n",
                          kLeft, kTop, kBottom, kWidth - kRight);
    absl::StrAppendFormat(&text, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                          (kLeft + kWidth - kRight) / 2, kBottom + 42, Escape(x_axis_.title));
    const double middle = (kTop + kBottom) / 2;
    absl::StrAppendFormat(&text,
                          "<text x=\"18\" y=\"%.1f\" text-anchor=\"middle\" "
                          "transform=\"rotate(-90 18 %.1f)\">%s</text>\n",
                          middle, middle, Escape(y_axis_.title));
    return text;
  }

  // The attributes that tell a line from the others.
  static std::string Look(size_t i) {
    const char* const dashes = kDashes[i / kColors];
    return absl::StrCat("class=\"line s", i % kColors, "\"",
                        *dashes == '\0' ? "" : absl::StrCat(" stroke-dasharray=\"", dashes, "\""));
  }

  std::string Line(size_t i) const {
    const std::vector<PlotPoint>& points = lines_[i].points;
    const auto has_place = [&](size_t at) { return at < points.size() && HasPlace(points[at]); };
    size_t count = 0;
    for (size_t at = 0; at < points.size(); ++at) count += has_place(at) ? 1 : 0;
    std::string path, marks;
    for (size_t at = 0; at < points.size(); ++at) {
      if (!has_place(at)) continue;
      const bool is_first = at == 0 || !has_place(at - 1);
      const double x = x_.At(points[at].x), y = y_.At(points[at].y);
      absl::StrAppendFormat(&path, "%s%.1f %.1f", is_first ? "M" : "L", x, y);
      // A point without neighbours is no line: nothing but its mark shows it.
      if (count > kMarksMax && !(is_first && !has_place(at + 1))) continue;
      absl::StrAppendFormat(&marks, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n",
                            i % kColors, x, y);
    }
    return absl::StrCat("<path ", Look(i), " d=\"", path, "\"><title>", Escape(lines_[i].label),
                        "</title></path>\n", marks);
  }

  // The names of all lines below the picture, as many in a row as fit.
  std::string Legend() {
    std::string text;
    double x = kLeft, y = kBottom + kBelow + kLegendRow / 2;
    for (size_t i = 0; i < lines_.size(); ++i) {
      const std::string name = CutText(lines_[i].label, kLabelMax);
      const std::string label = Escape(name);
      const double width = kLegendDash + 6 + kCharacter * static_cast<double>(name.size());
      if (x > kLeft && x + width > kWidth - kRight) {
        x = kLeft;
        y += kLegendRow;
      }
      absl::StrAppendFormat(
          &text, "<path %s d=\"M%.1f %.1fh%.1f\"/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n", Look(i),
          x, y - 4, kLegendDash, x + kLegendDash + 6, y, label);
      x += width + kLegendGap;
    }
    legend_end_ = y + kLegendRow / 2;
    return text;
  }

  const std::vector<PlotLine>& lines_;
  const PlotAxis& x_axis_;
  const PlotAxis& y_axis_;
  Scale x_, y_;
  double legend_end_ = 0;
};

}  // namespace

absl::StatusOr<std::string> PlotSvg(const std::vector<PlotLine>& lines, const PlotAxis& x,
                                    const PlotAxis& y) {
  if (lines.empty() || lines.size() > kPlotLinesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", lines.size(), " lines, want 1 to ", kPlotLinesMax, " in one picture"));
  }
  for (const PlotLine& line : lines) {
    const auto has_place = [&](const PlotPoint& point) {
      return std::isfinite(point.x) && std::isfinite(point.y) && (!x.logarithmic || point.x > 0) &&
             (!y.logarithmic || point.y > 0);
    };
    if (std::any_of(line.points.begin(), line.points.end(), has_place)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", ToPrintable(line.label), "\" has no point in ", line.points.size(),
        ", want one with numbers",
        x.logarithmic || y.logarithmic ? " above 0 where an axis is logarithmic" : ""));
  }
  return Picture(lines, x, y).Draw();
}

}  // namespace tessera
