"""Residual networks on picture files, with augmentation: what must not change a result changes none, be it the number
of servers, how rows are dealt to workers, where rows lie, or that the job was stopped on the way."""
import os
import random
import struct
import unittest
import zlib

from checkpoint_folders import CheckpointTest, keeping, restoring, sameness, save_on_the_way, step_folder, steps_in
from cluster import Cluster, read_tensors, run_to_end, tessera, write_job

SIDE = 12
CLASSES = ("ants", "bees", "moths")
CONV = {"conv2d": {"channels": 6, "kernel": 3, "padding": 1}}
BLOCK = {"residual": {"layers": [CONV, "batch_norm", "relu", CONV, "batch_norm"]}}
RESIDUAL = [CONV, "batch_norm", "relu", BLOCK, "relu",
            {"residual": {"layers": [{"conv2d": {"channels": 8, "kernel": 3, "stride": 2, "padding": 1}}, "batch_norm"],
                          "shortcut": [{"conv2d": {"channels": 8, "kernel": 1, "stride": 2}}, "batch_norm"]}},
            "relu", "avg_pool", {"linear": {"units": 3}}]
WITHOUT_NORM = [CONV, "relu", {"residual": {"layers": [CONV, "relu", CONV]}}, "relu", "avg_pool",
                {"linear": {"units": 3}}]
AUGMENT = {"flip": "horizontal", "crop": {"padding": 2}}


def png(rows):
    """A picture of 8 bits and three channels, from rows of (red, green, blue)."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in rows)
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def picture(kind, draw):
    """Noise that is brighter in one channel, and in one half of that: flipped it is another picture."""
    def value(x, channel):
        return min(255, draw.randrange(60) + (140 if channel == kind and x < SIDE // 2 else 40))
    return png([[tuple(value(x, c) for c in range(3)) for x in range(SIDE)] for _ in range(SIDE)])


def make_pictures(folder):
    draw = random.Random(7)
    for part, count in (("train", 16), ("test", 5)):
        for kind, name in enumerate(CLASSES):
            os.makedirs(os.path.join(folder, part, name))
            for i in range(count):
                with open(os.path.join(folder, part, name, "%02d.png" % i), "wb") as file:
                    file.write(picture(kind, draw))


class PictureTest(CheckpointTest):
    def setUp(self):
        super().setUp()
        make_pictures(self.path("pictures"))

    def job(self, layers=None, servers=2, workers=2, batch=6, memory=None, augment=True, method=None, rate=0.1,
            **train):
        job = {
            "name": "pictures-test",
            "seed": 3,
            "data": {"format": "images", "directory": self.path("pictures"), "train": {"features": "train"},
                     "test": {"features": "test"}, "resize": SIDE, "crop": SIDE - 2,
                     "normalize": {"mean": [0.3, 0.3, 0.3], "stddev": [0.2, 0.2, 0.2]}},
            "model": {"input": [3, SIDE - 2, SIDE - 2], "layers": layers or RESIDUAL},
            "train": dict({"batch_size": batch, "optimizer": {"sgd": {"learning_rate": rate, "momentum": 0.9}}},
                          **train),
            "method": method or {"data_parallel": {}},
            "cluster": {"servers": servers, "workers": workers, "lease_timeout": "4s"},
        }
        if augment:
            job["data"]["augment"] = AUGMENT
        if memory:
            job["data"].update(memory=memory, threads=2)
        return job


class SamePictures(PictureTest):
    def test_servers_memory_and_repetition_change_no_bit_and_augmentation_does(self):
        reference = run_to_end(self, self.job(steps=24, evaluate_every=1))
        for name, job in (("again", self.job(steps=24, evaluate_every=1)),
                          ("servers", self.job(steps=24, evaluate_every=1, servers=3)),
                          ("disk", self.job(steps=24, evaluate_every=1, memory=4000))):
            with self.subTest(name):
                report = run_to_end(self, job)
                self.assertEqual(report["parameters_hash"], reference["parameters_hash"])
                self.assertEqual(report["final"], reference["final"])
        plain = run_to_end(self, self.job(steps=24, augment=False))
        self.assertNotEqual(plain["parameters_hash"], reference["parameters_hash"])

    def test_two_workers_follow_one_that_has_the_whole_batch(self):
        one = run_to_end(self, self.job(WITHOUT_NORM, servers=1, workers=1, batch=12, steps=20))
        two = run_to_end(self, self.job(WITHOUT_NORM, servers=2, workers=2, batch=6, steps=20))
        for key in ("train_loss", "test_loss"):
            self.assertAlmostEqual(two["final"][key], one["final"][key], delta=1e-4)
        # It has learned, so that equality says something.
        self.assertLess(one["final"]["train_loss"], 1.0)


class StoppedPictures(PictureTest):
    def test_a_resumed_job_ends_as_one_that_was_not_stopped(self):
        for name, changes in (("held", {}), ("disk", {"memory": 4000}),
                              ("local_sgd", {"memory": 4000, "method": {"local_sgd": {"local_steps": 3}}})):
            with self.subTest(name):
                job = self.job(steps=36, evaluate_every=1, **changes)
                folder = self.path("checkpoints-" + name)
                whole, saved = save_on_the_way(self, job, folder, 9)
                self.assertLess(saved, 36)
                report = run_to_end(self, restoring(job, step_folder(folder, saved)))
                self.assertEqual(sameness(report), sameness(whole))


class BegunFromAFile(PictureTest):
    """model.init: the tensors of an export in place of random values."""

    def exported(self, job):
        folder = self.path("checkpoints")
        report = run_to_end(self, keeping(job, folder, 1000))
        out = self.path("model.safetensors")
        self.assertEqual(tessera("export", step_folder(folder, steps_in(folder)[-1]), out)[0], 0)
        return report, out

    def begun_from(self, job, path, **train):
        job = dict(job, model=dict(job["model"], init=path))
        job["train"] = dict(job["train"], **train)
        return job

    def test_a_job_that_begins_from_an_export_is_the_trained_model(self):
        trained, out = self.exported(self.job(steps=30))
        self.assertLess(trained["final"]["test_loss"], 0.9)
        # One step that moves nothing: the evaluation at its end is of the file's values.
        for servers in (1, 3):
            with self.subTest(servers=servers):
                job = self.begun_from(self.job(servers=servers, rate=1e-30), out, steps=1)
                report = run_to_end(self, job)
                self.assertEqual(report["parameters_hash"], trained["parameters_hash"])
                self.assertEqual(report["final"]["test_loss"], trained["final"]["test_loss"])
        again = run_to_end(self, self.begun_from(self.job(), out, steps=12))
        self.assertLess(again["final"]["train_loss"], trained["history"][-1]["train_loss"])
        self.assertNotEqual(again["parameters_hash"], trained["parameters_hash"])

    def test_a_job_from_a_file_goes_on_from_its_checkpoint_without_it(self):
        _, out = self.exported(self.job(steps=6))
        job = self.begun_from(self.job(steps=36), out)
        folder = self.path("later")
        whole, saved = save_on_the_way(self, job, folder, 9)
        os.remove(out)
        report = run_to_end(self, restoring(job, step_folder(folder, saved)))
        self.assertEqual(sameness(report), sameness(whole))

    def refusal(self, job):
        code, out, error = tessera("run", write_job(self, job), "--quiet")
        self.assertEqual(code, 2, out + error)
        return error

    def test_servers_with_other_values_are_refused(self):
        _, out = self.exported(self.job(steps=2))
        with open(out, "rb") as file:
            data = file.read()
        weight = read_tensors(out)["layers.0.weight"][1]
        changed = bytes([weight[0] ^ 1]) + weight[1:]
        other = self.path("other.safetensors")
        with open(other, "wb") as file:
            file.write(data.replace(weight, changed))
        job = self.begun_from(self.job(), out, steps=1)
        cluster = Cluster(self, job, servers=1, workers=0)
        for name, init in (("another file", other), ("no file", "")):
            with self.subTest(name):
                server = cluster.start_server(1, "--set", "model.init=" + init)
                self.contains(server.expect_exit(1), "server 1: model.init: its file is", "as server 0 has it")
        cluster.start_server(1)
        for rank in (0, 1):
            cluster.start_worker(rank, "--set", "model.init=")
        cluster.finish(*cluster.servers[1:3])

    def test_a_file_that_is_not_the_models_is_refused_by_name(self):
        _, out = self.exported(self.job(steps=1))
        self.contains(self.refusal(self.begun_from(self.job(WITHOUT_NORM), out, steps=1)),
                      "model.init: \"%s\"" % out, "is missing, want [")
        wider = [dict(CONV, conv2d=dict(CONV["conv2d"], kernel=5, padding=2))] + RESIDUAL[1:]
        self.contains(self.refusal(self.begun_from(self.job(wider), out, steps=1)),
                      "tensor \"layers.0.weight\" is [6, 3, 3, 3], want [6, 3, 5, 5]")
        os.truncate(out, os.path.getsize(out) - 8)
        self.contains(self.refusal(self.begun_from(self.job(), out, steps=1)), "model.init: \"%s\"" % out)
        os.remove(out)
        self.contains(self.refusal(self.begun_from(self.job(), out, steps=1)), "model.init: \"%s\"" % out)


if __name__ == "__main__":
    unittest.main()
