"""Workers on a GPU that the host plays, in real processes: what they move and learn, go on from, and refuse."""
import os
import re
import unittest

import cluster
from cluster import ENDLESS, ROOT, Cluster, Process, Test, digits, members, write_job

PLAYED = os.path.join(ROOT, "tests/worker/played_gpu_worker")
ON_GPU = {"device": "cuda"}


class Device(Test):
    def setUp(self):
        super().setUp()
        self.real, cluster.WORKER = cluster.WORKER, PLAYED

    def tearDown(self):
        cluster.WORKER = self.real
        super().tearDown()

    def train(self, job, on_gpu):
        where = {"cluster": dict(job["cluster"], **(ON_GPU if on_gpu else {}))}
        return Cluster(self, dict(job, **where)).finish(within=90)

    def test_every_kind_of_exchange_moves_and_learns_what_it_does_on_the_cpu(self):
        sizes = {"units": 200, "batch": 16, "rate": 0.1}
        jobs = {
            "as it is": digits(method={"local_sgd": {"local_steps": 4}}, steps=120, **sizes),
            "in pieces": digits(method={"local_sgd": {"local_steps": 4}}, steps=120, micro_batch=6, **sizes),
            "subnets as they are": digits(method={"ist": {"local_steps": 5}}, steps=160, **sizes),
            "quantised": digits(method={"quant_dp": {}}, steps=120, **sizes),
            "int8 with feedback": dict(digits(method={"local_sgd": {"local_steps": 4}}, steps=120, **sizes),
                                       codec={"push": "int8", "error_feedback": True, "pull": "f16"}),
            "coded pulls alone": dict(digits(steps=120, **sizes), codec={"pull": "bf16"}),
            "a core": digits(method={"slim_dp": {"alpha": 0.3, "beta": 0.15, "core_every": 10}}, steps=160, **sizes),
            "a core, the rest held back": dict(
                digits(method={"slim_dp": {"alpha": 0.3, "beta": 0.15, "core_every": 10}}, steps=160, **sizes),
                codec={"error_feedback": True}),
            "thresholds": digits(method={"decentralized": {"density": 0.05}}, steps=160, **sizes),
            "subnets": dict(digits(method={"ist": {"local_steps": 5}}, steps=160, **sizes),
                            codec={"push": "bf16", "pull": {"qsgd": {"bits": 8}}}),
        }
        jobs["halves of the layers"] = digits(workers=3, method={"layer_separation": {}}, steps=120, batch=16, rate=0.1)
        jobs["halves of the layers"]["model"] = {"input": [1, 8, 8], "layers": [
            {"conv2d": {"channels": 6, "kernel": 3, "padding": 1}}, "batch_norm", "relu", {"max_pool": {"kernel": 2}},
            {"linear": {"units": 40}}, "batch_norm", "relu", {"dropout": {"probability": 0.1}},
            {"linear": {"units": 10}}]}
        for name, job in jobs.items():
            with self.case(name):
                want, got = self.train(job, False), self.train(job, True)
                for key in ("steps", "rounds", "examples"):
                    self.assertEqual(got[key], want[key], key)
                moved = {"push_payload_bytes", "pull_payload_bytes", "exchanges"}
                # How many entries reach a threshold follows from the values.
                if name != "thresholds":
                    self.assertEqual({key: got["traffic"][key] for key in moved},
                                     {key: want["traffic"][key] for key in moved})
                self.assertGreaterEqual(got["final"]["test_accuracy"], want["final"]["test_accuracy"] - 0.05)
                self.assertGreaterEqual(got["final"]["test_accuracy"], 0.85)
                self.assertEqual(got["refused_pushes"], 0)

    def test_a_job_resumed_on_a_gpu_ends_as_one_that_never_stopped(self):
        methods = {
            "momentum": (digits(method={"local_sgd": {"local_steps": 3, "average_state": False}}, workers=1, steps=60,
                                optimizer={"sgd": {"learning_rate": 0.05, "momentum": 0.9}}), None),
            "adamw and what int8 held back": (
                digits(method={"diloco": {"local_steps": 5}}, workers=1, units=64, steps=60,
                       optimizer={"adamw": {"learning_rate": 0.003}}),
                {"push": "int8", "error_feedback": True}),
            "a core": (digits(method={"slim_dp": {"alpha": 0.3, "beta": 0.15, "core_every": 10}}, workers=1, units=64,
                              steps=60), {"error_feedback": True}),
            # A tau that is led is no state of a checkpoint.
            "thresholds": (digits(workers=1, units=64, steps=60), {"push": {"threshold": {"tau": 0.02}}}),
        }
        for name, (job, codec) in methods.items():
            with self.case(name):
                job["train"].pop("learning_rate", None)
                if codec:
                    job["codec"] = codec
                folder = self.path("checkpoints-" + name.split()[0])
                whole = self.train(dict(job, checkpoint={"directory": folder, "every_steps": 15, "keep": 100}), True)
                steps = sorted(entry for entry in os.listdir(folder) if entry.startswith("step-"))
                # A disk that is slow gets fewer; the last one may be of the end.
                self.assertGreaterEqual(len(steps), 2)
                again = self.train(dict(job, checkpoint={"restore": os.path.join(folder, steps[0])}), True)
                for key in ("parameters_hash", "steps", "final"):
                    self.assertEqual(again[key], whole[key], key)

    def test_a_worker_whose_gpu_fails_leaves_and_may_be_started_again_on_the_cpu(self):
        job = digits(epochs=ENDLESS, batch=16, lease="60s")
        trains = Cluster(self, job, workers=1)
        failing = trains.start_worker(1, "--set", "cluster.device=cuda", env={"PLAYED_GPU": "launches=2000"})
        self.contains(failing.expect_exit(1), "cuda:0: a kernel: an illegal memory access was encountered")
        # It has left: nobody waits for its lease, and its rank is free.
        trains.await_further()
        again = trains.start_worker(1)
        again.await_output("joined rank=1")
        trains.await_status("two train", lambda status: len(members(status, "training")) == 2)
        trains.await_further()
        trains.drain()
        report = trains.finish(failing)
        self.assertEqual((report["outcome"], report["members"]["joined"]), ("stopped", 3))

    def test_what_cannot_be_worked_with_is_one_line_before_joining(self):
        refusals = {
            "no_driver": "cluster.device: cuda:0: this machine has no NVIDIA driver, want one; or use cpu",
            "old_driver": "cluster.device: cuda:0: the driver supports CUDA 12.8, want 13.0 or newer",
            "no_gpu": "cluster.device: cuda:0: this machine has no GPU, want one; or use cpu",
            "old_gpu": "cluster.device: cuda:0: NVIDIA Tesla V100 has compute capability 7.0, want 8.0 or newer",
            "memory=100000": "cluster.device: cuda:0 (emulated GPU, 2048 MiB) has 100000 bytes free, but this worker "
                             "needs ",
        }
        job = digits(workers=1, steps=5, cluster=ON_GPU)
        job["codec"] = {"push": "int8"}
        path = write_job(self, job)
        for what, message in refusals.items():
            with self.case(what):
                # Nobody is there to be joined.
                worker = Process(self, "worker " + what.split("=")[0], [PLAYED, "--job", path, "--coordinator",
                                                                        "127.0.0.1:9"], {"PLAYED_GPU": what})
                output = worker.expect_exit(2)
                self.assertEqual(len(output.strip().splitlines()), 1, output)
                self.assertIn("tessera-worker: " + message, output)
        with self.case("another one"):
            worker = Process(self, "worker", [PLAYED, "--job", path, "--coordinator", "127.0.0.1:9",
                                              "--set", "cluster.device=cuda:1"])
            self.contains(worker.expect_exit(2), "cluster.device: cuda:1: this machine has 1 GPU, want cuda")

    def test_what_convolutions_need_is_told_of_the_precision_that_computes_them(self):
        job = digits(workers=1, steps=5, cluster=ON_GPU)
        conv = {"conv2d": {"channels": 32, "kernel": 3, "padding": 1}}
        job["model"] = {"input": [1, 8, 8], "layers": [conv, "relu", conv, "relu", {"linear": {"units": 10}}]}
        needs = {}
        for precision in ("f32", "tf32", "bf16"):
            with self.case(precision):
                job["train"]["precision"] = precision
                worker = Process(self, "worker " + precision, [PLAYED, "--job", write_job(self, job), "--coordinator",
                                                               "127.0.0.1:9"], {"PLAYED_GPU": "cudnn=100000"})
                found = re.search(r" \+ convolutions (\d+) ", worker.expect_exit(2))
                needs[precision] = int(found.group(1))
        # The workspace that cuDNN may have, which is not asked for in f32.
        workspace = 64 << 20
        self.assertLess(needs["f32"], workspace)
        self.assertGreater(needs["tf32"], workspace)
        self.assertGreater(needs["bf16"], workspace)


if __name__ == "__main__":
    unittest.main()
