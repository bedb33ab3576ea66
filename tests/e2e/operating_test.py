"""What docs/operating says: its example is a job, flags and fields are those that there are."""
import glob
import os
import re
import subprocess
import unittest

from cluster import DIGITS, ROOT, Test, errors_in, tessera


class Operating(Test):
    @classmethod
    def setUpClass(cls):
        cls.text = ""
        for page in sorted(glob.glob(os.path.join(ROOT, "docs/operating/*.md"))):
            with open(page) as file:
                cls.text += file.read()

    def test_the_example_is_a_job_that_trains(self):
        example = re.search(r"^    name: digits$(?:\n    .*|\n)+", self.text, re.M).group(0)
        path = self.path("example.yaml")
        with open(path, "w") as file:
            file.write(re.sub(r"^    ", "", example, flags=re.M))
        code, out, error = tessera("check", path, "--set", "data.directory=" + DIGITS)
        self.assertEqual((code, error), (0, ""))
        code, out, error = tessera("run", path, "--set", "data.directory=" + DIGITS, "--set", "train.epochs=1",
                                   "--set", "train.evaluate_every=1", "--set", "cluster.servers=2")
        self.assertEqual((code, errors_in(error)), (0, ""))

    def test_every_flag_it_names_is_there(self):
        programs = {"tessera run": ["run"], "tessera status": ["status"], "tessera check": ["check"]}
        helps = {name: tessera(*arguments, "--help")[1] for name, arguments in programs.items()}
        for program in ("server", "worker"):
            helps["tessera-" + program] = subprocess.run([os.path.join(ROOT, program, "tessera-" + program), "--help"],
                                                         capture_output=True, text=True, timeout=30).stdout
        for line in self.text.splitlines():
            if not line.startswith("    "):
                continue
            command = line.split("#")[0]
            for name, text in helps.items():
                # What stands before the program, as of a container's, is not its own.
                called = re.search(r"(?:^|[ /])%s (.*)" % name, command)
                if called:
                    for flag in re.findall(r"(?:^| )(--[a-z-]+)", called.group(1)):
                        self.assertIn(flag, text, line)

    def test_every_field_of_the_report_is_explained(self):
        from cluster import digits, run_to_end
        report = run_to_end(self, digits(steps=5))
        for key in list(report) + [key for value in report.values() if isinstance(value, dict) for key in value]:
            if not key.isdigit():
                self.assertIn("`%s`" % key, self.text)


if __name__ == "__main__":
    unittest.main()
