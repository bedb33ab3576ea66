"""Rules for every file of the tree that no compiler checks."""
import os
import re
import subprocess
import unittest

# A hint that a file holds two concepts, and no reason to slice one class into several files.
LINES_MAX = 700
COLUMNS_MAX = 120
# Columns are free where one thing must stay on one line: tables, addresses, the options of a key.
FREE_COLUMNS = (".md", ".proto", "deploy/fetch_data.sh")
CODE = (".bazel", ".bzl", ".cc", ".h", ".proto", ".py", ".sh")
# Files that are no text, whatever their bytes.
BINARY = (".gz", ".jpg", ".png", ".rgb")
# Libraries whose headers lie in no folder of their own.
LIBRARIES = ("dnnl",)
BUCKETS = {"util", "utils", "helper", "helpers", "misc", "manager"}
# Another one breaks lines elsewhere.
CLANG_FORMAT = "14"


def clang_format_version():
    """Its major number; None where there is none."""
    try:
        text = subprocess.run(["clang-format", "--version"], capture_output=True, text=True).stdout
    except OSError:
        return None
    found = re.search(r"version (\d+)\.", text)
    return found and found.group(1)


def tree():
    """The tree that this test lies in, not its copy for the test."""
    here = os.path.dirname(os.path.realpath(__file__))
    while not os.path.exists(os.path.join(here, "WORKSPACE")):
        here = os.path.dirname(here)
    return here


def files(root):
    """Paths below the root, of everything that belongs to the project."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=root,
                            capture_output=True, text=True)
    if listed.returncode == 0:
        return sorted(path for path in set(listed.stdout.splitlines()) if os.path.isfile(os.path.join(root, path)))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def anchor(heading):
    """What a link to a heading says."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


class Tidy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        root = tree()
        cls.paths = files(root)
        cls.texts = {}
        for path in cls.paths:
            with open(os.path.join(root, path), "rb") as file:
                data = file.read()
            if b"\0" not in data and not path.endswith(BINARY):
                cls.texts[path] = data.decode()

    def of(self, *endings):
        return {path: text for path, text in self.texts.items() if path.endswith(endings)}

    def none(self, offenders):
        self.assertEqual(list(offenders), [])

    def test_the_tree_was_found(self):
        self.assertIn("WORKSPACE", self.texts)
        self.assertGreater(len(self.of(".h")), 50)

    def test_no_file_is_long(self):
        self.none((path, text.count("\n")) for path, text in self.of(*CODE).items() if text.count("\n") > LINES_MAX)

    def test_no_line_is_wide(self):
        self.none("%s:%d" % (path, number) for path, text in self.of(*CODE).items() if not path.endswith(FREE_COLUMNS)
                  for number, line in enumerate(text.splitlines(), 1) if len(line) > COLUMNS_MAX)

    @unittest.skipUnless(clang_format_version() == CLANG_FORMAT, "clang-format %s is not installed: Debian 12 has it"
                         % CLANG_FORMAT)
    def test_code_is_as_clang_format_writes_it(self):
        paths = [path for path in self.of(".cc", ".h", ".cu", ".cuh") if not path.startswith("third_party/")]
        self.assertGreater(len(paths), 500)
        done = subprocess.run(["clang-format", "--dry-run", "-Werror", "-style=file", *paths], cwd=tree(),
                              capture_output=True, text=True)
        wrong = sorted(set(re.findall(r"^([\w./]+):\d+:\d+: error", done.stderr, re.M)))
        self.assertEqual((wrong, done.returncode), ([], 0), "run clang-format -i on these")

    def test_a_body_on_a_line_of_its_own_has_braces(self):
        # Where the condition is on one line: clang-format 14 adds none.
        bare = re.compile(r"^( *)(if|for|while) \(.*\)\n\1  [^ \n].*;$", re.M)
        self.none("%s: %s" % (path, found.group(0)) for path, text in self.of(".cc", ".h").items()
                  for found in bare.finditer(text))

    def test_the_gpu_checks_sanitizer_takes_every_case_of_the_battery(self):
        taken = re.findall(r"^battery_(?:last_)?tags=\((.*)\)$", self.texts["deploy/gpu/steps.sh"], re.M)
        self.assertEqual(len(taken), 2)
        taken = set(" ".join(taken).split())
        cases = [(path, found) for path, text in self.of(".cc").items()
                 if path.startswith("tests/kernels/conformance/")
                 for found in re.findall(r'TEST_CASE\((?:"[^"]*"[\s,]*)+\)', text)]
        self.assertGreater(len(cases), 60)
        self.none(case for case in cases if not taken & set(re.findall(r"\[(\w+)\]", case[1])))

    def test_time_is_taken_from_the_steady_clock(self):
        # Abseil's waits with a limit go by the clock of the day (common/base/wakeup.h). A coordinator's state may be
        # gone on from on another machine. A launch compares machines' clocks. TensorBoard's files say when something
        # was.
        day = re.compile(r"absl::Now\(|\b(Await|Wait|Lock\w*)With(Timeout|Deadline)\(")
        may = ("common/base/log.cc", "deploy/cli/curves/event_file.cc", "deploy/cli/doctor_command.cc",
               "deploy/cli/launch/launch_command.cc", "server/rpc/live_coordinator.cc")
        self.none("%s: %s" % (path, word.group(0)) for path, text in self.of(".cc", ".h").items()
                  if not path.startswith(("tests/", "bench/")) and path not in may for word in day.finditer(text))

    def test_every_cell_about_a_failure_names_a_test_that_exists(self):
        text = self.texts["docs/operating/failures.md"].split("## What happens when\n")[1]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
        failures = [row[2:] for row in rows if len(row) == 5][2:]
        listed = [row for row in rows if len(row) == 2 and re.fullmatch("[A-Z]+", row[0])]
        tests = dict(listed)
        self.assertEqual(len(tests), len(listed), "two tests have the same letters")
        self.assertGreater(len(failures), 20)
        named = set()
        for cells in failures:
            self.assertEqual(len(cells), 3)
            self.none(cell for cell in cells if not re.search(r"\[[A-Z]+\]", cell))
            named.update(re.findall(r"\[([A-Z]+)\]", " ".join(cells)))
        self.assertEqual(named, set(tests))
        for where in tests.values():
            path, name = re.fullmatch("`(.+)` `(.+)`", where).groups()
            # A name may go on in the next line.
            source = re.sub(r'"\s+"', "", self.texts["tests/" + path])
            python, catch = r"def %s\(self\)", r'TEST_CASE(_METHOD\(\w+, |\()"%s"'
            self.assertRegex(source, (python if path.endswith(".py") else catch) % re.escape(name))

    def test_the_version_is_the_changelogs_newest(self):
        released = re.findall(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", self.texts["CHANGELOG.md"], re.M)
        constant = re.search(r'kVersion\[\] = "(.*)";', self.texts["common/base/process.h"]).group(1)
        self.assertEqual(constant, released[0])
        self.assertEqual(released, sorted(released, key=lambda name: [int(part) for part in name.split(".")],
                                          reverse=True))

    def headings(self):
        """What links to each page may name behind a #."""
        return {path: {anchor(line) for line in re.findall(r"^#+ (.*)$", text, re.M)}
                for path, text in self.of(".md").items()}

    def test_every_link_of_a_page_leads_to_a_file_and_a_heading(self):
        headings, places = self.headings(), set(self.paths)
        for path in self.paths:
            while path:
                path = os.path.dirname(path)
                places.add(path)

        def broken(page, target):
            path, _, heading = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            return path not in places or (heading and heading not in headings.get(path, ()))

        self.none((page, target) for page, text in self.of(".md").items()
                  for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text) if broken(page, target))

    def test_every_page_that_a_file_names_is_there(self):
        headings = self.headings()
        self.none((path, page, heading) for path, text in self.texts.items()
                  for page, heading in re.findall(r"(?<![\w/.])(docs/[\w/]+\.md)(?:#([\w-]+))?", text)
                  if page not in headings or (heading and heading not in headings[page]))

    def test_every_source_that_a_page_or_a_comment_names_is_there(self):
        # Pages about adding something name files that are yet to be written, the tutorial one that its reader writes.
        source = re.compile(r"(?<![\w/.$}])((?:common|server|worker|kernels|proto|deploy|bench|tests)/[\w/]+"
                            r"\.(?:h|cc|cu|proto|py|sh|yaml))\b")
        yet_to_come = re.compile(r"kernels/cuda/X|deploy/ist\.yaml")
        places = set(self.paths)
        self.none((path, named) for path, text in self.of(".md", ".cc", ".h").items()
                  if not path.startswith(("docs/adding/", "tests/")) and path != "CHANGELOG.md"
                  for named in source.findall(text)
                  if not {named, "tests/" + named} & places and not yet_to_come.match(named))

    def test_no_tabs_and_no_spaces_at_the_end_of_a_line(self):
        self.none("%s:%d" % (path, number) for path, text in self.of(*CODE).items()
                  for number, line in enumerate(text.splitlines(), 1) if "\t" in line or line != line.rstrip())

    def test_every_file_ends_with_one_line_break(self):
        self.none(path for path, text in self.of(".md", *CODE).items()
                  if text and (not text.endswith("\n") or text.endswith("\n\n")))

    def test_nothing_is_left_for_later_in_a_comment(self):
        later = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
        self.none(path for path, text in self.of(".md", ".yaml", *CODE).items() if later.search(text))

    def test_no_path_of_one_machine(self):
        machine = re.compile(r"(?<![\w.])/(wo" + r"rk|home/\w+|root|Users)/")
        self.none("%s:%d" % (path, number) for path, text in self.texts.items()
                  for number, line in enumerate(text.splitlines(), 1) if machine.search(line))

    def test_no_file_is_a_bucket(self):
        def words(path):
            return set(re.split(r"[/_.]", path.lower()))

        self.none(path for path in self.paths if words(path) & BUCKETS)

    def test_every_header_has_a_first_comment_and_a_guard_named_after_it(self):
        for path, text in self.of(".h").items():
            guard = "TESSERA_%s_" % re.sub(r"[^A-Z0-9]", "_", path.upper())
            if path.startswith("third_party/"):
                continue
            with self.subTest(path):
                self.assertTrue(text.startswith("// "), "the first line says what the file is")
                self.assertIn("\n#ifndef %s\n#define %s\n" % (guard, guard), text)
                self.assertTrue(text.endswith("#endif  // %s\n" % guard))

    def test_scripts_and_python_say_what_they_are(self):
        for path, text in self.of(".py", ".sh").items():
            lines = text.splitlines()
            first = lines[1] if lines[0].startswith("#!") else lines[0]
            self.assertTrue(first.startswith(('"""', "# ")), path)

    def test_includes_are_by_full_path(self):
        for path, text in self.of(".cc", ".h").items():
            for name in re.findall(r'^#include "([^"]+)"', text, re.M):
                self.assertTrue("/" in name or name.startswith(LIBRARIES), "%s includes %s" % (path, name))

    def test_dependencies_are_sorted(self):
        """The package's own, those of other packages, those of other repositories; a package before its targets."""
        def place(label):
            return (0 if label.startswith(":") else 1 if label.startswith("//") else 2, label.replace(":", "\x01"))

        def unsorted(path, text):
            for block in re.finditer(r'^    (?:deps|hdrs) = \[\n((?:        "[^"]*",\n)+)    \]', text, re.M):
                labels = re.findall('"(.*)"', block.group(1))
                if labels != sorted(labels, key=place):
                    yield "%s:%d" % (path, text.count("\n", 0, block.start()) + 1)

        self.none(where for path, text in self.of("BUILD.bazel", ".BUILD").items() for where in unsorted(path, text))

    def test_every_folder_with_code_is_a_package(self):
        folders = {os.path.dirname(path) for path in self.of(".cc", ".h")}
        self.none(folder for folder in sorted(folders) if os.path.join(folder, "BUILD.bazel") not in self.texts)


if __name__ == "__main__":
    unittest.main()
