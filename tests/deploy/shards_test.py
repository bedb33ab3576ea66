"""tests/e2e/run_python.sh runs each test of a file once, in however many parts Bazel has it run."""
import os
import re
import subprocess
import tempfile
import unittest

FILE = """import unittest
class First(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): pass
class Second(unittest.TestCase):
    def test_c(self): pass
    def test_d(self): %s
    def test_e(self): pass
if __name__ == "__main__":
    unittest.main()
"""


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.file, self.told = os.path.join(folder.name, "some_test.py"), os.path.join(folder.name, "told")
        self.write("pass")

    def write(self, body):
        with open(self.file, "w") as file:
            file.write(FILE % body)

    def run_part(self, *arguments, **environment):
        """(exit code, names of the tests that were run)"""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TEST_")}
        done = subprocess.run(["sh", "tests/e2e/run_python.sh", self.file, *arguments], capture_output=True, text=True,
                              env=dict(inherited, **environment), check=False)
        return done.returncode, re.findall(r"^(test_\w) ", done.stderr, re.M)

    def run_parts(self, count, *arguments):
        parts = [self.run_part(*arguments, TEST_TOTAL_SHARDS=str(count), TEST_SHARD_INDEX=str(index),
                               TEST_SHARD_STATUS_FILE=self.told) for index in range(count)]
        return [code for code, _ in parts], [names for _, names in parts]

    def test_without_parts_all_are_run(self):
        self.assertEqual(self.run_part(), (0, ["test_a", "test_b", "test_c", "test_d", "test_e"]))
        self.assertFalse(os.path.exists(self.told))

    def test_each_is_run_in_one_part(self):
        self.assertEqual(self.run_parts(2), ([0, 0], [["test_a", "test_c", "test_e"], ["test_b", "test_d"]]))
        # Bazel takes a test for one that knows of no parts where this is missing.
        self.assertTrue(os.path.exists(self.told))
        self.assertEqual(self.run_parts(6)[1][5], [])

    def test_those_that_are_named_are_run_in_one_part(self):
        named = self.run_parts(2, "Second.test_d", "First.test_a")[1]
        self.assertEqual(named, [["test_d"], ["test_a"]])

    def test_a_failure_fails_its_part(self):
        self.write("self.fail()")
        self.assertEqual(self.run_parts(2)[0], [0, 1])


if __name__ == "__main__":
    unittest.main()
