"""What README shows works as it stands there."""
import os
import re
import textwrap
import unittest

from cluster import ROOT, TEST_MAX, Test, tessera

# Of those that end by themselves.
COMMAND = re.compile(r"tessera ((?:check|doctor|plan|run|simulate) JOB\.yaml[^`#\n]*)")


class Readme(Test):
    def test_its_job_is_right_and_its_commands_on_it_end_well(self):
        with open(os.path.join(ROOT, "README.md")) as file:
            text = file.read()
        block = text.split("## A job\n", 1)[1].lstrip("\n").split("\n\n", 1)[0]
        folder = self.path("jobs")
        os.mkdir(folder)
        os.symlink(os.path.join(ROOT, "deploy/data"), self.path("data"))
        with open(os.path.join(folder, "JOB.yaml"), "w") as file:
            file.write(textwrap.dedent(block))
        os.chdir(folder)
        commands = [command.split() for command in COMMAND.findall(text)]
        self.assertEqual({command[0] for command in commands}, {"check", "doctor", "plan", "run", "simulate"})
        for command in commands:
            with self.case(" ".join(command)):
                code, out, error = tessera(*command, within=TEST_MAX)
                self.assertEqual(code, 0, out + error)


if __name__ == "__main__":
    unittest.main()
