#include "deploy/cli/curves/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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
constexpr int kMarksMax = 40;
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
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return absl::StrFormat("%.*f", std::min(digits, 9), value);
}

// An axis from `begin` to `end`, with marks at multiples of `step`.
struct Scale {
  double begin = 0, end = 1, step = 0.2;
  // The pixels of both ends.
  double from = 0, to = 1;

  double At(double value) const { return from + (value - begin) / (end - begin) * (to - from); }
};

// The scale whose marks are 1, 2 or 5 times a power of ten apart, at most six intervals of them, around the values.
Scale ScaleOf(double least, double most, double from, double to) {
  if (least == most) {
    const double margin = least == 0 ? 1 : std::fabs(least) * 0.1;
    least -= least > 0 ? std::min(least, margin) : margin;
    most += margin;
  }
  const double rough = (most - least) / 6;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double each : {1.0, 2.0, 5.0}) {
    if (each * power >= rough * (1 - 1e-9)) {
      step = each * power;
      break;
    }
  }
  return {std::floor(least / step + 1e-9) * step, std::ceil(most / step - 1e-9) * step, step, from,
          to};
}

bool IsThere(const CurvePoint& point, const PlotAxis& x, const PlotAxis& y) {
  return std::isfinite(x.value(point)) && std::isfinite(y.value(point));
}

// "test accuracy has no number in "a"; it has loss": what a curve without any point has on other axes.
absl::Status CheckLine(const PlotLine& line, const PlotAxis& x, const PlotAxis& y) {
  const std::vector<CurvePoint>& points = line.curve.points;
  const auto has = [&](const PlotAxis& axis) {
    return std::any_of(points.begin(), points.end(),
                       [&](const CurvePoint& point) { return IsThere(point, x, axis); });
  };
  if (has(y)) return absl::OkStatus();
  std::vector<absl::string_view> others;
  for (const PlotAxis& other : PlotAxesY()) {
    if (has(other)) others.push_back(other.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", ToPrintable(line.label), "\" has no ", y.name, " in ", points.size(),
                   points.size() == 1 ? " evaluation" : " evaluations",
                   others.empty() ? "; want a report with evaluations"
                                  : absl::StrCat("; want --y ", absl::StrJoin(others, " or ")),
                   ", or another report"));
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
    double x_most = 0;
    double y_least = std::numeric_limits<double>::infinity(), y_most = -y_least;
    for (const PlotLine& line : lines_) {
      for (const CurvePoint& point : line.curve.points) {
        if (!IsThere(point, x_axis_, y_axis_)) continue;
        x_most = std::max(x_most, x_axis_.value(point));
        y_least = std::min(y_least, y_axis_.value(point));
        y_most = std::max(y_most, y_axis_.value(point));
      }
    }
    // Progress begins at 0 on all horizontal axes, and ends where the longest job did.
    x_ = ScaleOf(0, x_most, kLeft, kWidth - kRight);
    if (x_most > 0) x_.end = x_most;
    y_ = ScaleOf(y_least, y_most, kBottom, kTop);
  }

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
    for (double mark = std::ceil(y_.begin / y_.step - 1e-9); mark * y_.step <= y_.end * (1 + 1e-9);
         ++mark) {
      const double value = mark * y_.step, at = y_.At(value);
      absl::StrAppendFormat(
          &text,
          "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
          "text-anchor=\"end\">%s</text>\n",
          kLeft, at, kWidth - kRight, kLeft - 8, at + 4, MarkText(value, y_.step));
    }
    for (double mark = 0; mark * x_.step <= x_.end * (1 + 1e-9); ++mark) {
      const double value = mark * x_.step, at = x_.At(value);
      absl::StrAppendFormat(&text,
                            "<path class=\"axis\" d=\"M%.1f %.1fv5\"/><text x=\"%.1f\" y=\"%.1f\" "
                            "text-anchor=\"middle\">%s</text>\n",
                            at, kBottom, at, kBottom + 20, MarkText(value, x_.step));
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
    std::string path, marks;
    bool is_down = false;
    int points = 0;
    for (const CurvePoint& point : lines_[i].curve.points) {
      if (!IsThere(point, x_axis_, y_axis_)) {
        is_down = false;
        continue;
      }
      const double x = x_.At(x_axis_.value(point)), y = y_.At(y_axis_.value(point));
      absl::StrAppendFormat(&path, "%s%.1f %.1f", is_down ? "L" : "M", x, y);
      absl::StrAppendFormat(&marks, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n",
                            i % kColors, x, y);
      is_down = true;
      ++points;
    }
    return absl::StrCat("<path ", Look(i), " d=\"", path, "\"><title>", Escape(lines_[i].label),
                        "</title></path>\n", points > kMarksMax ? "" : marks);
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

std::vector<PlotAxis> PlotAxesX() {
  return {{"seconds", "seconds of training", [](const CurvePoint& p) { return p.seconds; }},
          {"examples", "examples", [](const CurvePoint& p) { return p.examples; }},
          {"bytes", "bytes pulled and pushed", [](const CurvePoint& p) { return p.bytes; }},
          {"steps", "steps of each worker",
           [](const CurvePoint& p) { return static_cast<double>(p.step); }}};
}

std::vector<PlotAxis> PlotAxesY() {
  return {{"accuracy", "test accuracy", [](const CurvePoint& p) { return p.test_accuracy; }},
          {"loss", "test loss", [](const CurvePoint& p) { return p.test_loss; }},
          {"perplexity", "perplexity", [](const CurvePoint& p) { return p.perplexity; }}};
}

absl::StatusOr<std::string> PlotSvg(const std::vector<PlotLine>& lines, const PlotAxis& x,
                                    const PlotAxis& y) {
  if (lines.empty() || lines.size() > kPlotLinesMax) {
    return absl::InvalidArgumentError(absl::StrCat("got ", lines.size(), " reports, want 1 to ",
                                                   kPlotLinesMax, " in one picture"));
  }
  for (const PlotLine& line : lines) {
    if (const absl::Status status = CheckLine(line, x, y); !status.ok()) return status;
  }
  return Picture(lines, x, y).Draw();
}

}  // namespace tessera
