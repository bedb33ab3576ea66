"""The examples in PyTorch, against a library of the tests' own: they train to the job's end."""
import os
import subprocess
import sys
import unittest

from fake_job import FAKE, PACKAGE, ROOT, FakeJobTest

import numpy as np
import tessera

try:
    import torch
except ImportError:
    torch = None

EXAMPLES = os.path.join(PACKAGE, "examples")
DIGITS = os.path.join(ROOT, "deploy/data/optdigits")
ADDED_MAX = 10


def read(name):
    with open(os.path.join(EXAMPLES, name)) as file:
        return file.read().splitlines()


class Examples(FakeJobTest):
    def path(self, name):
        return os.path.join(self.folder, name)

    def run_program(self, *command, code=0):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=100,
                              env=dict(os.environ, PYTHONPATH=PACKAGE, TESSERA_CLIENT_LIBRARY=FAKE, OMP_NUM_THREADS="1",
                                       TESSERA_JOB=self.path("job")))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def write_job_of(self, init, *lines):
        tensors = tessera.load_tensors(init)
        self.write(*["tensor %s %s" % (name, " ".join(map(str, array.shape))) for name, array in tensors.items()],
                   *lines)
        return tensors

    @unittest.skipUnless(torch, "python3-torch is not installed")
    def test_a_resnet(self):
        np.save(self.path("x.npy"), np.random.default_rng(1).integers(0, 255, (32, 32, 32, 3), np.uint8))
        np.save(self.path("y.npy"), np.arange(32) % 3)
        command = ["-m", "tessera.example_resnet", self.path("x.npy"), self.path("y.npy"), "--batch", "4", "--width",
                   "4"]
        self.run_program(*command, "--init", self.path("init"))
        tensors = self.write_job_of(self.path("init"), "steps 3", "local_steps 2", "save_every 1", "back_at 3")
        self.assertEqual(sum(name.endswith("running_var") for name in tensors), 20)
        self.assertIn("rows 4", self.run_program(*command))
        self.write_job_of(self.path("init"), "steps 2", "gradient 0.01")
        self.assertIn("rows 4", self.run_program(*command))
        np.save(self.path("y.npy"), np.arange(31))
        self.assertIn("want [rows, 3, 32, 32] of uint8 and [rows]", self.run_program(*command, code=1))

    @unittest.skipUnless(torch, "python3-torch is not installed")
    def test_a_gpt(self):
        with open(self.path("text"), "w") as file:
            file.write("to be or not to be, that is the question; " * 20)
        command = ["-m", "tessera.example_gpt", self.path("text"), "--context", "8", "--units", "8", "--heads", "2",
                   "--layers", "2", "--batch", "3"]
        self.run_program(*command, "--init", self.path("init"))
        tensors = self.write_job_of(self.path("init"), "steps 3", "gradient 0.01")
        self.assertIn("blocks.1.attention.in_proj_weight", tensors)
        self.assertIn("score", self.run_program(*command))

    @unittest.skipUnless(torch, "python3-torch is not installed")
    def test_a_script_joins_with_few_added_lines(self):
        self.assertIn("'score': 0.9", self.run_program(os.path.join(EXAMPLES, "plain.py"), DIGITS))
        self.run_program(os.path.join(EXAMPLES, "joined.py"), DIGITS, self.path("init"))
        self.write_job_of(self.path("init"), "steps 90", "local_steps 4", "evaluate_every 20")
        self.assertIn("'score': ", self.run_program(os.path.join(EXAMPLES, "joined.py"), DIGITS))

    def test_the_page_shows_the_difference_of_the_two_scripts(self):
        plain, joined = read("plain.py"), read("joined.py")
        done = subprocess.run(["diff", "-U1", os.path.join(EXAMPLES, "plain.py"), os.path.join(EXAMPLES, "joined.py")],
                              capture_output=True, text=True)
        lines = done.stdout.splitlines()[2:]
        self.assertLessEqual(sum(line.startswith("+") for line in lines), ADDED_MAX)
        self.assertGreater(len(plain), 40)
        self.assertEqual(len(joined) - len(plain), 8)
        with open(os.path.join(ROOT, "docs/own_models.md")) as file:
            page = file.read()
        self.assertIn("\n".join("    " + line for line in lines if not line.startswith("@@")), page)

    @unittest.skipUnless(torch, "python3-torch is not installed")
    def test_a_program_without_a_job_is_told_what_it_lacks(self):
        with open(self.path("text"), "w") as file:
            file.write("some text " * 200)
        error = self.run_program("-m", "tessera.example_gpt", self.path("text"), code=1)
        self.assertIn("job file: cannot be read", error)


if __name__ == "__main__":
    unittest.main()
