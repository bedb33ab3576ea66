"""Subnets of models of one's own, against real servers: the parts, the values and the traffic are those of layers."""
import json
import os
import sys
import unittest

from checkpoint_folders import keeping, step_folder, steps_in
from cluster import DIGITS, Process, Test, digits, run_to_end, tessera, write_job
from own_workers import PACKAGE, OwnCluster, exported

import numpy as np
import spread_worker

from tessera import save_tensors
from tessera.digits_network import DigitsNetwork, read_digits

try:
    import torch
except ImportError:
    torch = None

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subnet_worker.py")
GROUPS = {"hidden": [["layers.0.weight", 0], ["layers.0.bias", 0], ["layers.2.weight", 1]]}
UNITS, STEPS = 32, 60


def initial():
    random = np.random.default_rng(3)
    shapes = {"layers.0.weight": (UNITS, 64), "layers.0.bias": (UNITS,), "layers.2.weight": (10, UNITS),
              "layers.2.bias": (10,)}
    return {name: (random.standard_normal(shape) * 0.1).astype(np.float32) for name, shape in shapes.items()}


class Subnets(Test):
    test_max = 300

    def file_of(self, values, name="init.safetensors"):
        save_tensors(values, self.path(name))
        return self.path(name)

    def job_of_tensors(self, file, method=None, workers=2, steps=STEPS, **train):
        return {"name": "own", "seed": 1, "model": {"tensors": file, "groups": GROUPS},
                "train": dict({"steps": steps, "optimizer": {"sgd": {"learning_rate": 0.2}}}, **train),
                "method": method or {"ist": {"local_steps": 5}},
                "cluster": {"servers": 2, "workers": workers, "lease_timeout": "4s"}}

    def job_of_layers(self, file, method=None):
        job = digits(servers=2, norm=False, units=UNITS, steps=STEPS, method=method or {"ist": {"local_steps": 5}})
        job["model"]["init"] = file
        return job

    def train(self, job, *flags, replay=None, within=120):
        """All workers are NumPy programs; the report, and what each was told."""
        cluster = OwnCluster(self, job, workers=0)
        records = []
        for rank in range(job["cluster"]["workers"]):
            records.append(self.path("record-%d-%d" % (len(os.listdir(self.folder)), rank)))
            given = ["--replay", replay[rank]] if replay else []
            cluster.start_script(rank, PROGRAM, "--data", DIGITS, "--record", records[-1], *given, *flags)
        report = cluster.finish(within=within)
        self.assertEqual(report["outcome"], "finished")
        return report, records

    def read(self, records):
        told = []
        for record in records:
            with open(record) as file:
                told.append(json.load(file))
        return told

    def test_a_job_of_tensors_is_trained_as_one_of_layers(self):
        for method in ({"ist": {"local_steps": 5}}, {"ist": {"local_steps": 5, "order": "rolling"}}, {"ensemble": {}}):
            with self.case(str(method)):
                self.compare(method)
                self.setUp()

    def compare(self, method):
        values = initial()
        theirs, by_layers, by_tensors = (self.path(name) for name in ("theirs", "layers", "tensors"))
        job = self.job_of_layers(self.file_of(values), method)
        want = run_to_end(self, keeping(job, theirs, 0))
        layers, records = self.train(keeping(job, by_layers, 0))
        # A whole network's values begin a job of layers times its sites, where no norm is behind the sums.
        values["layers.2.weight"] *= np.float32(2)
        own = self.job_of_tensors(self.file_of(values, "own.safetensors"), method)
        tensors, own_records = self.train(keeping(own, by_tensors, 0), "--share", replay=records)
        # The parts are the same by rank and round, disjoint, and cover all units.
        ours, theirs_told = self.read(own_records), self.read(records)
        for rank in range(2):
            self.assertEqual([each["hidden"] for each in ours[rank]["units"].values()],
                             [each["layers.0"] for each in theirs_told[rank]["units"].values()])
            self.assertEqual(ours[rank]["units"].keys(), theirs_told[rank]["units"].keys())
            self.assertEqual(ours[rank]["rejoined"], 0)
        rounds = 1 if "ensemble" in method else STEPS // 5
        self.assertEqual(len(ours[0]["units"]), rounds)
        for number in ours[0]["units"]:
            parts = [told["units"][number]["hidden"] for told in ours]
            self.assertEqual(sorted(parts[0] + parts[1]), list(range(UNITS)))
            self.assertEqual(ours[0]["sites"][number], [0, 2])
        # Values: the same arithmetic has the same bits, and the C++ worker's is within rounding.
        a, b, c = exported(self, theirs), exported(self, by_layers), exported(self, by_tensors)
        c["layers.2.weight"] /= np.float32(2)
        self.assertEqual(sorted(a), sorted(c))
        for name in a:
            np.testing.assert_allclose(b[name], a[name], atol=2e-4, err_msg=name)
            np.testing.assert_array_equal(c[name], b[name], err_msg=name)
        for report in (layers, tensors):
            self.assertAlmostEqual(report["final"]["test_accuracy"], want["final"]["test_accuracy"], delta=0.01)
            self.assertAlmostEqual(report["final"]["test_loss"], want["final"]["test_loss"], delta=2e-3)
        if "ist" in method:
            self.assertGreater(tensors["final"]["test_accuracy"], 0.8)
        # Traffic is what check says, and what the formula says.
        floats = UNITS * 64 + UNITS + 10 * UNITS + 2 * 10
        code, out, _ = tessera("check", write_job(self, own))
        self.assertEqual(code, 0)
        self.contains(out, "# traffic     each worker pushes %d bytes and pulls %d bytes every" % ((2 * floats,) * 2))
        for report in (want, layers, tensors):
            self.assertEqual(report["traffic"]["push_payload_bytes"], 4 * rounds * floats)
            self.assertEqual(report["traffic"]["pull_payload_bytes"], want["traffic"]["pull_payload_bytes"])

    def test_units_of_several_indices_come_and_go_whole(self):
        for method in ({"ist": {"local_steps": 3}}, {"ist": {"local_steps": 3, "order": "rolling"}}):
            with self.case(str(method)):
                folder = self.path("checkpoints")
                job = self.job_of_tensors(self.file_of(spread_worker.initial()), method, workers=3, steps=30,
                                          steps_per_epoch=15)
                job["model"]["groups"] = spread_worker.GROUPS
                cluster = OwnCluster(self, keeping(job, folder, 0), workers=0)
                for rank in range(3):
                    cluster.start_script(rank, spread_worker.__file__)
                self.assertEqual(cluster.finish(within=60)["outcome"], "finished")
                spread_worker.check(exported(self, folder), spread_worker.after(30))
                self.setUp()

    @unittest.skipUnless(torch, "python3-torch is not installed")
    def test_the_example_in_pytorch_learns(self):
        init = self.path("init.safetensors")
        Process(self, "init", [sys.executable, "-m", "tessera.example_ist_torch", "--init", init],
                {"PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}).expect_exit(0, within=60)
        job = self.job_of_tensors(init, {"ist": {"local_steps": 10}}, steps=300, steps_per_epoch=100)
        job["model"]["groups"] = {
            "first": [["0.weight", 0], ["1.weight", 0], ["1.bias", 0], ["3.weight", 1]],
            "second": [["3.weight", 0], ["4.weight", 0], ["4.bias", 0], ["6.weight", 1]]}
        cluster = OwnCluster(self, job, workers=0)
        for rank in range(2):
            cluster.start_own(rank, "example_ist_torch", "--data", DIGITS)
        report = cluster.finish(within=120)
        self.assertGreater(report["final"]["test_accuracy"], 0.85)

    def test_one_worker_trains_the_whole_model_as_if_alone(self):
        folder = self.path("checkpoints")
        values = initial()
        job = keeping(self.job_of_tensors(self.file_of(values), workers=1), folder, 0)
        _, records = self.train(job)
        told, = self.read(records)
        x, labels = read_digits(DIGITS, "train")
        network = DigitsNetwork([values[name] for name in
                                 ("layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias")])
        for step in range(STEPS):
            rows = np.array(told["rows"][str(step)])
            network.train(x[rows], labels[rows])
            for value, gradient in zip(network.parameters, network.gradients):
                value -= np.float32(0.2) * gradient
        got = exported(self, folder)
        for name in values:
            np.testing.assert_array_equal(got[name], values[name], err_msg=name)

    def test_the_last_steps_train_the_whole_model(self):
        report, records = self.train(self.job_of_tensors(
            self.file_of(initial()), {"ist": {"local_steps": 5, "tail_steps": 20}}, steps_per_epoch=25))
        self.assertEqual(report["steps"], STEPS)
        for told in self.read(records):
            self.assertEqual(len(told["units"]), (STEPS - 20) // 5)
            self.assertEqual(len(told["whole"]), 1)
        self.assertGreater(report["final"]["test_accuracy"], 0.8)

    def test_a_worker_that_scores_nothing_never_holds_the_whole_model(self):
        report, _ = self.train(self.job_of_tensors(self.file_of(initial()), steps_per_epoch=20), "--blind")
        self.assertEqual(report["steps"], STEPS)

    def test_a_job_goes_on_from_its_checkpoint_to_the_same_bits(self):
        file, whole, rest = self.file_of(initial()), self.path("whole"), self.path("rest")
        job = self.job_of_tensors(file, steps_per_epoch=20)
        self.train(keeping(job, whole, 20), "--pause", "0.02")
        steps = steps_in(whole)
        self.assertGreater(len(steps), 1)
        resumed = dict(job, checkpoint={"directory": rest, "restore": step_folder(whole, steps[0])})
        _, records = self.train(resumed)
        for told in self.read(records):
            # The state that was saved is the number of steps by then.
            self.assertEqual(told["loaded"], [steps[0]])
        want, got = exported(self, whole), exported(self, rest)
        for name in want:
            np.testing.assert_array_equal(got[name], want[name], err_msg=name)

    def test_when_a_worker_is_lost_the_others_have_larger_parts(self):
        job = self.job_of_tensors(self.file_of(initial()), workers=3, steps=300)
        cluster = OwnCluster(self, job, workers=0)
        records = [self.path("record-%d" % rank) for rank in range(3)]
        for rank in range(3):
            cluster.start_script(rank, PROGRAM, "--data", DIGITS, "--record", records[rank], "--pause", "0.02")
        cluster.await_step(20)
        cluster.workers[2].kill()
        report = cluster.finish(cluster.workers[2], within=120)
        self.assertEqual(report["steps"], 300)
        told = self.read(records[:2])
        last = max(told[0]["units"], key=int)
        parts = [each["units"][last]["hidden"] for each in told]
        self.assertEqual(sorted(parts[0] + parts[1]), list(range(UNITS)))
        self.assertEqual(told[0]["sites"][last][1], 2)
        self.assertEqual(told[0]["sites"]["1"][1], 3)


if __name__ == "__main__":
    unittest.main()
