"""Jobs whose models are convolutions and pooling: what holds for any model holds for them, and who reads their weights
as PyTorch's finds the function that was trained."""
import gzip
import json
import os
import unittest

import numpy

from checkpoint_folders import CheckpointTest, keeping, restoring, sameness, save_on_the_way, step_folder, steps_in
from cluster import DIGITS, ENDLESS, JOBS, Cluster, digits, members, read_tensors, run_to_end, tessera, write_job

FRONT = [{"conv2d": {"channels": 6, "kernel": 3, "padding": 1}}, "relu", {"max_pool": {"kernel": 3, "stride": 2}},
         {"conv2d": {"channels": 8, "kernel": [2, 3], "stride": [1, 2], "padding": [0, 1], "bias": False}}, "relu"]
NORMED = [{"conv2d": {"channels": 6, "kernel": 3, "padding": 1}}, "batch_norm", "relu", {"max_pool": {"kernel": 2}}]
LAST = [{"linear": {"units": 10}}]
HIDDEN = [{"linear": {"units": 24, "bias": False}}, "batch_norm", "relu"]


def images(layers=None, **keys):
    job = digits(**dict({"rate": 0.2}, **keys))
    job["model"] = {"input": [1, 8, 8], "layers": layers or FRONT + LAST}
    return job


def final(report):
    return report["final"]["train_loss"], report["final"]["test_loss"]


def windows(x, kernel, stride, padding, fill):
    """[rows, channels, places down, places across, kernel's height, kernel's width]"""
    x = numpy.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2), constant_values=fill)
    seen = numpy.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))
    return seen[:, :, ::stride[0], ::stride[1]]


def read_idx(name, header):
    with gzip.open(os.path.join(DIGITS, name)) as file:
        return numpy.frombuffer(file.read(), numpy.uint8)[header:]


class Functions(CheckpointTest):
    def test_an_export_is_the_function_in_the_layout_of_pytorch(self):
        folder = self.path("checkpoints")
        report = run_to_end(self, keeping(images(epochs=8), folder, 1000))
        out = self.path("model.safetensors")
        self.assertEqual(tessera("export", step_folder(folder, steps_in(folder)[-1]), out)[0], 0)
        tensors = {name: numpy.frombuffer(data, numpy.float32).reshape(shape).astype(float)
                   for name, (shape, data) in read_tensors(out).items()}
        self.assertEqual({name: values.shape for name, values in tensors.items()},
                         {"layers.0.weight": (6, 1, 3, 3), "layers.0.bias": (6,), "layers.3.weight": (8, 6, 2, 3),
                          "layers.5.weight": (10, 32), "layers.5.bias": (10,)})
        x = (read_idx("test-images-idx3-ubyte.gz", 16).reshape(-1, 1, 8, 8) / 255.0 - 0.0192) / 0.0236
        labels = read_idx("test-labels-idx1-ubyte.gz", 8)
        first = windows(x, (3, 3), (1, 1), (1, 1), 0)
        x = numpy.einsum("ncyxij,ocij->noyx", first, tensors["layers.0.weight"])
        x = numpy.maximum(x + tensors["layers.0.bias"].reshape(1, 6, 1, 1), 0)
        x = windows(x, (3, 3), (2, 2), (0, 0), -numpy.inf).max(axis=(4, 5))
        x = numpy.einsum("ncyxij,ocij->noyx", windows(x, (2, 3), (1, 2), (0, 1), 0), tensors["layers.3.weight"])
        x = numpy.maximum(x, 0).reshape(len(labels), -1) @ tensors["layers.5.weight"].T + tensors["layers.5.bias"]
        x -= x.max(axis=1, keepdims=True)
        loss = numpy.log(numpy.exp(x).sum(axis=1)) - x[range(len(labels)), labels]
        self.assertAlmostEqual(loss.mean(), report["final"]["test_loss"], delta=1e-4)
        self.assertAlmostEqual((x.argmax(axis=1) == labels).mean(), report["final"]["test_accuracy"], delta=1e-9)
        self.assertGreater(report["final"]["test_accuracy"], 0.7)

    def test_a_job_goes_on_from_a_checkpoint_with_another_number_of_servers(self):
        job = images(NORMED + LAST, servers=3, epochs=2, method={"local_sgd": {"local_steps": 5}})
        folder = self.path("checkpoints")
        whole, saved = save_on_the_way(self, job, folder, 15)
        again = restoring(job, step_folder(folder, saved))
        again["cluster"]["servers"] = 2
        report = run_to_end(self, again)
        self.assertEqual(report["parameters_hash"], whole["parameters_hash"])
        self.assertEqual(sameness(report), sameness(whole))

    def test_a_convolution_of_another_form_is_refused(self):
        folder = self.path("checkpoints")
        report = run_to_end(self, keeping(images(NORMED + LAST, epochs=1), folder, 1000))
        self.assertEqual(report["outcome"], "finished")
        other = images([{"conv2d": {"channels": 6, "kernel": [1, 9], "padding": [0, 4]}}] + NORMED[1:] + LAST)
        step = step_folder(folder, steps_in(folder)[-1])
        code, _, error = tessera("eval", step, write_job(self, other))
        self.assertNotEqual(code, 0)
        self.contains(error, "[6, 1, 3, 3]", "[6, 1, 1, 9]")
        code, _, error = tessera("run", write_job(self, restoring(other, step)), "--quiet")
        self.assertNotEqual(code, 0)
        self.contains(error, "[6, 1, 3, 3]", "[6, 1, 1, 9]")

    def test_eval_scores_a_checkpoint_as_the_job_did(self):
        folder = self.path("checkpoints")
        job = keeping(images(NORMED + HIDDEN + LAST, epochs=3), folder, 1000)
        report = run_to_end(self, job)
        code, out, error = tessera("eval", step_folder(folder, steps_in(folder)[-1]), write_job(self, job))
        self.assertEqual((code, error), (0, ""))
        self.assertIn("%.4f" % report["final"]["test_accuracy"], out)


class Equalities(CheckpointTest):
    def test_neither_time_nor_the_number_of_servers_changes_a_bit(self):
        for method in ({"data_parallel": {}}, {"local_sgd": {"local_steps": 7}}):
            with self.case(list(method)[0]):
                hashes = {run_to_end(self, images(NORMED + LAST, servers=servers, workers=3, batch=16, epochs=2,
                                                  method=method))["parameters_hash"] for servers in (1, 2, 2, 7)}
                self.assertEqual(len(hashes), 1)

    def test_workers_with_a_part_of_the_batch_follow_one_with_all_of_it(self):
        want = final(run_to_end(self, images(servers=1, workers=1, batch=60, steps=90)))
        got = final(run_to_end(self, images(servers=2, workers=3, batch=20, steps=90)))
        for a, b in zip(got, want):
            self.assertAlmostEqual(a, b, delta=1e-4)
        self.assertLess(want[1], 1.5)  # It has learned.

    def test_pieces_of_a_minibatch_make_the_minibatch(self):
        want = final(run_to_end(self, images(batch=32, steps=60)))
        got = final(run_to_end(self, images(batch=32, steps=60, micro_batch=7)))
        for a, b in zip(got, want):
            self.assertAlmostEqual(a, b, delta=1e-4)


class Methods(CheckpointTest):
    def test_codecs_and_simulation_take_convolutions_as_they_are(self):
        exact = run_to_end(self, images(NORMED + LAST, epochs=10))["final"]["test_accuracy"]
        self.assertGreater(exact, 0.85)
        job = dict(images(NORMED + LAST, epochs=10), codec={"push": "int8", "pull": "bf16"})
        self.assertGreater(run_to_end(self, job)["final"]["test_accuracy"], exact - 0.05)
        report = self.path("simulated.json")
        code, _, error = tessera("simulate", write_job(self, images(NORMED + LAST, epochs=10)), "--bandwidth", "1Gbit",
                                 "--step-time", "1ms", "--report", report, "--quiet")
        self.assertEqual((code, error), (0, ""))
        with open(report) as file:
            self.assertEqual(json.load(file)["final"]["test_accuracy"], exact)


class Subnets(CheckpointTest):
    """Convolutions are every site's, and the mean of the sites is kept; the layers behind them are cut."""

    LAYERS = NORMED + HIDDEN + HIDDEN + LAST
    CONVOLUTION = 6 * 9 + 6 + 12
    WHOLE = CONVOLUTION + 24 * 96 + 48 + 24 * 24 + 48 + 240 + 10

    def test_the_traffic_is_the_formula(self):
        job = images(self.LAYERS, workers=2, batch=16, steps=40, method={"ist": {"local_steps": 10}})
        report = run_to_end(self, job)
        # Of both sites: the hidden neurons' own once, what hidden neurons alone index half, the rest twice.
        own = 24 * 96 + 48 + 48 + 240
        floats = 2 * (self.CONVOLUTION + 10) + own + 24 * 24 // 2
        self.assertEqual(report["rounds"], 4)
        self.assertEqual(report["traffic"]["push_payload_bytes"], 4 * 4 * floats)

    def test_evaluation_in_blocks_agrees_with_evaluation_of_the_whole(self):
        job = images(self.LAYERS, workers=2, epochs=10, evaluate_every=5, method={"ist": {"local_steps": 10}})
        whole = run_to_end(self, job)
        job["cluster"]["evaluation_memory"] = "1KiB"
        blocks = run_to_end(self, job)
        self.assertEqual(blocks["parameters_hash"], whole["parameters_hash"])
        for a, b in zip(final(blocks), final(whole)):
            self.assertAlmostEqual(a, b, delta=1e-5)
        self.assertGreater(whole["final"]["test_accuracy"], 0.8)

    def test_an_ensemble_averages_them(self):
        report = run_to_end(self, images(self.LAYERS, workers=2, epochs=10, method={"ensemble": {}}))
        self.assertGreater(report["final"]["test_accuracy"], 0.85)

    def test_a_lost_site_leaves_the_others_training(self):
        cluster = Cluster(self, images(self.LAYERS, workers=3, epochs=ENDLESS, lease="4s",
                                       method={"ist": {"local_steps": 5}}))
        cluster.await_step(50)
        victim = cluster.workers[2]
        victim.kill()
        cluster.await_status("two train", lambda status: len(members(status, "training")) == 2)
        cluster.await_further(100)
        cluster.drain()
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))
        self.assertGreater(report["final"]["test_accuracy"], 0.8)


class Users(CheckpointTest):
    def test_the_job_that_is_shipped_learns(self):
        report = run_to_end(self, os.path.join(JOBS, "digits_conv.yaml"))
        self.assertGreater(report["final"]["test_accuracy"], 0.93)


if __name__ == "__main__":
    unittest.main()
