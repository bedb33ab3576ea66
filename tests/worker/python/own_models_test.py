"""PyTorch models of their own, in jobs of tensors, against real servers."""
import os
import sys
import unittest

from checkpoint_folders import UNHURRIED, keeping, restoring, sameness, step_folder, steps_in
from cluster import DIGITS, ROOT, Process, Test, tessera, write_job
from own_workers import PACKAGE, OwnCluster, exported, load_tensors

import numpy as np

try:
    import torch
except ImportError:
    torch = None

JOINED = os.path.join(ROOT, "worker/python/examples/joined.py")


def job_of(init, method, steps, optimizer=None, **model):
    return {"name": "own", "seed": 1, "model": dict(model, tensors=init),
            "train": {"steps": steps, "optimizer": optimizer or {"sgd": {"learning_rate": 0.1, "momentum": 0.5}}},
            "method": method, "cluster": {"servers": 2, "workers": 2}}


@unittest.skipUnless(torch, "python3-torch is not installed")
class OwnModels(Test):
    test_max = 300

    def setUp(self):
        super().setUp()
        self.init = self.path("init.safetensors")

    def own(self, *command):
        """Runs a program to its end, without a job."""
        Process(self, "init", [sys.executable, *command],
                {"PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}).expect_exit(0, within=60)

    def train(self, job, program, *flags, env=None, within=120):
        """Two workers train; the report."""
        cluster = OwnCluster(self, job, workers=0)
        for rank in range(2):
            cluster.start_own(rank, program, *flags, env=env)
        report = cluster.finish(within=within)
        self.assertEqual((report["outcome"], report["steps"]), ("finished", job["train"]["steps"]))
        return report

    def test_a_script_trains_a_job_of_tensors_which_is_exported_under_its_names(self):
        self.own(JOINED, DIGITS, self.init)
        begun = load_tensors(self.init)
        for name, method in (("local_sgd", {"local_sgd": {"local_steps": 4}}),
                             ("averaged", {"local_sgd": {"local_steps": 4, "average_state": True}}),
                             ("overlap", {"diloco": {"local_steps": 4, "overlap": True}}),
                             ("fragments", {"diloco": {"local_steps": 8, "fragments": 4}}),
                             ("delay", {"diloco": {"local_steps": 8, "fragments": 2, "delay": 2, "alpha": 0.5}}),
                             ("slim_dp", {"slim_dp": {}})):
            with self.case(name):
                folder = self.path("ckpt-" + name)
                job = keeping(job_of(self.init, method, 200), folder, 0)
                cluster = OwnCluster(self, job, workers=0)
                for rank in range(2):
                    cluster.start_script(rank, JOINED, DIGITS)
                report = cluster.finish(within=60)
                self.assertGreater(report["final"]["test_accuracy"], 0.85)
                got = exported(self, folder)
                self.assertEqual({name: array.shape for name, array in got.items()},
                                 {name: array.shape for name, array in begun.items()})
                self.assertFalse(np.array_equal(got["1.running_mean"], begun["1.running_mean"]))

    def test_the_command_starts_the_program(self):
        self.own(JOINED, DIGITS, self.init)
        path = write_job(self, job_of(self.init, {"local_sgd": {"local_steps": 4}}, 100))
        threads = self.path("threads")
        command = "echo $OMP_NUM_THREADS >> %s; exec %s %s %s" % (threads, sys.executable, JOINED, DIGITS)
        code, out, error = tessera("run", path, "--worker", command, within=60,
                                   env={"PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"})
        self.assertEqual(code, 0, out + error)
        # Our own worker does without it; what a program of one's own computes with is its user's affair.
        with open(threads) as file:
            self.assertEqual(file.read(), "1\n1\n")

    def programs(self):
        """(a ResNet, a GPT), each with data that it can learn."""
        random = np.random.default_rng(1)
        labels = np.arange(64) % 2
        pictures = random.integers(0, 100, (64, 3, 32, 32)) + 100 * labels[:, None, None, None]
        np.save(self.path("x.npy"), pictures.astype(np.uint8))
        np.save(self.path("y.npy"), labels)
        with open(self.path("text"), "w") as file:
            file.write("to be or not to be, that is the question; " * 50)
        return (["example_resnet", self.path("x.npy"), self.path("y.npy"), "--batch", "8", "--width", "4"],
                ["example_gpt", self.path("text"), "--context", "16", "--units", "16", "--layers", "1", "--heads", "2"])

    def test_a_job_that_is_resumed_ends_with_the_same_bits(self):
        resnet, gpt = self.programs()
        for name, program, method in (("gpt", gpt, {"local_sgd": {"local_steps": 4}}),
                                      ("averaged", gpt, {"local_sgd": {"local_steps": 4, "average_state": True}}),
                                      ("fragments", gpt, {"diloco": {"local_steps": 8, "fragments": 4}}),
                                      ("resnet", resnet, {"data_parallel": {}})):
            with self.case(name):
                self.own("-m", "tessera." + program[0], *program[1:], "--init", self.init)
                job = job_of(self.init, method, 48, {"adamw": {"learning_rate": 0.005}})
                folder = self.path("ckpt-" + name)
                flags = program[1:] + ["--learning-rate", "0.005"]
                whole = self.train(keeping(job, folder, 16), program[0], *flags, env=UNHURRIED)
                steps = steps_in(folder)
                self.assertGreaterEqual(len(steps), 2, steps)
                again = self.train(restoring(job, step_folder(folder, steps[0])), program[0], *flags)
                self.assertEqual(sameness(again), sameness(whole))

    def test_a_resnet_and_a_gpt(self):
        resnet, gpt = self.programs()
        adamw = {"adamw": {"learning_rate": 0.005}}
        for name, program, method, model in (
                ("resnet changes", resnet, {"diloco": {"local_steps": 5}}, {}),
                ("resnet gradients", resnet, {"data_parallel": {}}, {}),
                ("gpt changes", gpt, {"local_sgd": {"local_steps": 5, "average_state": True}},
                 {"evaluation": "minimise"}),
                ("gpt gradients", gpt, {"quant_dp": {}}, {"evaluation": "minimise"})):
            with self.case(name):
                self.own("-m", "tessera." + program[0], *program[1:], "--init", self.init)
                report = self.train(job_of(self.init, method, 60, adamw, **model), program[0], *program[1:],
                                    "--learning-rate", "0.005")
                if program is resnet:
                    self.assertGreater(report["final"]["train_loss"], 0)
                    self.assertLess(report["final"]["train_loss"], 0.3)
                else:
                    self.assertLess(report["final"]["test_loss"], 2.2)

    def test_a_model_that_is_not_the_jobs_is_told_how(self):
        self.own("-m", "tessera.example_gpt", __file__, "--units", "16", "--heads", "2", "--layers", "1", "--init",
                 self.init)
        cluster = OwnCluster(self, job_of(self.init, {"data_parallel": {}}, 10), workers=0)
        for rank in range(2):
            cluster.start_own(rank, "example_gpt", __file__, "--units", "16", "--heads", "2", "--layers", "2",
                              "--context", "32")
        for worker in cluster.workers:
            self.contains(worker.expect_exit(1), "attach: the model is not the job's", "\"positions\" has shape",
                          "the job has no tensor \"blocks.1.")


if __name__ == "__main__":
    unittest.main()
