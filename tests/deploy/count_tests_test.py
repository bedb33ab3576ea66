"""deploy/count_tests.py reads what Catch2 and unittest print."""
import importlib.util
import os
import tempfile
import unittest

SPEC = importlib.util.spec_from_file_location("count_tests", "deploy/count_tests.py")
count_tests = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(count_tests)
count = count_tests.count


class Count(unittest.TestCase):
    def test_catch2_cases_are_counted(self):
        self.assertEqual(count("x\nAll tests passed (31 assertions in 7 test cases)\n"), (7, 0, 0))
        self.assertEqual(count("All tests passed (1 assertion in 1 test case)\n"), (1, 0, 0))
        self.assertEqual(count("test cases:  9 |  7 passed | 2 failed\nassertions: 70 | 60 passed | 10 failed\n"),
                         (7, 2, 0))
        self.assertEqual(count("test cases: 1 | 1 failed\nassertions: 1 | 1 failed\n"), (0, 1, 0))

    def test_python_tests_are_counted(self):
        self.assertEqual(count("...\nRan 17 tests in 7.499s\n\nOK\n"), (17, 0, 0))
        self.assertEqual(count("Ran 1 test in 0.1s\n\nOK\n"), (1, 0, 0))
        self.assertEqual(count("Ran 6 tests in 0.1s\n\nOK (skipped=6)\n"), (0, 0, 6))

    def test_python_failures_and_errors_are_counted(self):
        text = ("FAIL: test_a (__main__.T.test_a)\n---\nERROR: test_b (__main__.T.test_b)\n---\n"
                "Ran 5 tests in 1s\n\nFAILED (failures=1, errors=1, skipped=1)\n")
        self.assertEqual(count(text), (2, 2, 1))

    def test_a_test_that_fails_in_several_subtests_is_one_failure(self):
        text = ("FAIL: test_a (__main__.T.test_a) [x]\nFAIL: test_a (__main__.T.test_a) [y]\n"
                "FAIL: test_a (__main__.T.test_a) (rank=1)\nRan 2 tests in 1s\n\nFAILED (failures=3)\n")
        self.assertEqual(count(text), (1, 1, 0))

    def test_catch2_cases_that_say_that_they_skip_are_not_passed(self):
        text = "skipped: /data: has no a9a\nskipped: /data: has no mnist\n"
        self.assertEqual(count(text + "All tests passed (31 assertions in 7 test cases)\n"), (5, 0, 2))
        self.assertEqual(count(text + "test cases: 9 | 7 passed | 2 failed\n"), (5, 2, 2))
        self.assertEqual(count_tests.why_skipped(text, 2), [(1, "/data: has no a9a"), (1, "/data: has no mnist")])

    def test_the_reason_is_told_where_the_log_has_it(self):
        text = ("test_a (m.T.test_a) ... skipped 'no nvcc'\ntest_b (m.T.test_b)\nOn words. ... skipped \"it's late\"\n"
                "test_c (m.T.test_c) ... skipped 'no nvcc'\ntest_d (m.T.test_d) ... ok\n")
        self.assertEqual(count_tests.why_skipped(text, 3), [(2, "no nvcc"), (1, "it's late")])
        self.assertEqual(count_tests.why_skipped("OK (skipped=2)\n", 2), [(2, "")])
        self.assertEqual(count_tests.why_skipped("ok\n", 0), [])

    def test_targets_that_were_not_built_are_told_once(self):
        text = ("//tests/a:gpu_test      SKIPPED\n//tests/a:ptx_test   SKIPPED\n//tests/a:x_test   PASSED in 1.0s\n"
                "//tests/a:ptx_test   SKIPPED\nSKIPPED\n")
        self.assertEqual(count_tests.left_out(text, ["//tests/a:gpu_test"]), ["//tests/a:ptx_test"])
        self.assertEqual(count_tests.left_out("//tests/a:x_test   PASSED in 1.0s\n", []), [])

    def test_parts_of_a_target_are_added_up(self):
        two, three = "Ran 2 tests in 1s\n\nOK\n", "Ran 3 tests in 1s\n\nOK (skipped=1)\n"
        self.assertEqual(count_tests.count_all([two, three], True), (4, 0, 1))
        # One that ended before its end is one failure, and hides no other part.
        self.assertEqual(count_tests.count_all([two, "Ran 5 tests in the"], False), (2, 1, 0))
        self.assertEqual(count_tests.count_all([two], False), (0, 1, 0))
        self.assertEqual(count_tests.count_all([""], True), (1, 0, 0))

    def test_logs_are_those_of_the_latest_run(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as root:
            self.assertEqual(count_tests.logs_of("//a:x_test", root), [""])
            for age, name in enumerate(("shard_1_of_2", "shard_2_of_2", "shard_1_of_3", ".")):
                path = os.path.join(root, "a/x_test", name, "test.log")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(name)
                os.utime(path, (100 - 10 * age, 100 - 10 * age))
            self.assertEqual(count_tests.logs_of("//a:x_test", root), ["shard_1_of_2", "shard_2_of_2"])
            os.utime(path, (200, 200))
            self.assertEqual(count_tests.logs_of("//a:x_test", root), ["."])

    def test_other_logs_say_nothing(self):
        self.assertIsNone(count(""))
        self.assertIsNone(count("Ran 5 tests in the"))


if __name__ == "__main__":
    unittest.main()
