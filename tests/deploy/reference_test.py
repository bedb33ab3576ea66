"""The reference pages in docs/operating are what deploy/reference.py makes of the code, and that leaves nothing out."""
import importlib.util
import os
import re
import unittest


def tree():
    """The tree that this test lies in, not its copy for the test."""
    here = os.path.dirname(os.path.realpath(__file__))
    while not os.path.exists(os.path.join(here, "WORKSPACE")):
        here = os.path.dirname(here)
    return here


ROOT = tree()


def script():
    found = importlib.util.spec_from_file_location("reference", os.path.join(ROOT, "deploy/reference.py"))
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def text_of(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read()


class Reference(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.script = script()
        cls.pages = cls.script.pages(ROOT)

    def test_the_pages_are_current(self):
        self.assertEqual(len(self.pages), 4)
        for path, text in self.pages.items():
            self.assertEqual(text_of(path), text, "%s is not current: run deploy/reference.py" % path)

    def test_every_metric_of_the_sources_is_in_the_table(self):
        table = self.pages["docs/operating/reference/metrics.md"]
        folder = os.path.join(ROOT, "server/monitor")
        for name in sorted(os.listdir(folder)):
            if name.endswith(".cc"):
                for metric in re.findall(r'"(tessera_\w+)"', text_of("server/monitor/" + name)):
                    self.assertRegex(table, r"\| `%s(\{.*\})?` \|" % metric)

    def test_a_rule_for_any_other_call_is_an_operators(self):
        listed, rest = self.script.roles(text_of("common/rpc/security.cc"))
        self.assertEqual(rest, "operator")
        self.assertIn(("/tessera.v1.ParameterServer/", "worker"), listed)
        self.assertIn(("/tessera.v1.Status/", "viewer"), listed)

    def test_a_comment_becomes_a_cell(self):
        self.assertEqual(self.script.sentence(" Two\n lines.\n"), "Two lines.")
        self.assertEqual(self.script.sentence(" A sum:\n   w | v\n"), "A sum: `w \\| v`")
        self.assertEqual(self.script.sentence(" Refused.\n   NOT_FOUND     nobody knows it\n"),
                         "Refused. `NOT_FOUND`: nobody knows it.")
        self.assertEqual(self.script.sentence(" See (docs/methods.md#data-order).\n"),
                         "See ([data order](../../methods.md#data-order)).")

    def test_a_metrics_labels_are_found(self):
        source = """
  const auto gauge = [&](absl::string_view name, absl::string_view help, double value) {
    set->Gauge(name, help, value, {{"rank", rank}});
  };
  gauge("tessera_a", "An (a). "
        "More.", 1);
  set->Counter("tessera_b", kHelp, 2, {{"x", "1"}, {"y", y}});
  constexpr absl::string_view kHelp = "Of b.";
  set->OneHot("tessera_c", "C.", "state", kStates, now);
"""
        self.assertEqual(self.script.metrics_of(source), [
            ("tessera_a", "gauge", ["rank"], "An (a). More."), ("tessera_b", "counter", ["x", "y"], "Of b."),
            ("tessera_c", "gauge", ["state"], "C.")])

    def test_rows_of_the_status_fields_are_metrics(self):
        source = """
    {Section::kRest, "steps", Metric::kCounter, "tessera_steps_total",
     "Steps. "
     "Of all.",
     [](const JobStatus& status) { return Count(status.steps()); }},
    {Section::kRest, "refused", Metric::kNone, nullptr, nullptr, nullptr},
"""
        self.assertEqual(self.script.metrics_of(source), [("tessera_steps_total", "counter", [], "Steps. Of all.")])


if __name__ == "__main__":
    unittest.main()
