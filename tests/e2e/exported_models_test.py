"""What training determined is part of the model: checkpoints and exports have it, and it holds whichever training rows
are named afterwards."""
import itertools
import json
import math
import os
import sys
import unittest

import numpy

from checkpoint_folders import (UNHURRIED, CheckpointTest, keeping, restoring, sameness, save_on_the_way, step_folder,
                                steps_in)
from cluster import DIGITS, JOBS, digits, run_to_end, tessera, write_job
from images_test import read_idx

sys.path.insert(0, os.path.join("tests", "common", "checkpoint"))
from safetensors_reader import load  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

OTHER_ROWS = "data.train: the rows are not those that the checkpoint was trained on"


def docs_loader():
    """The reader that docs/operating/models.md shows."""
    with open(os.path.join("docs", "operating", "models.md")) as file:
        lines = file.read().split("    # model.py\n")[1].split("\n")
    block = itertools.takewhile(lambda line: not line or line.startswith("    "), lines)
    scope = {}
    exec("\n".join(line[4:] for line in block), scope)
    return scope["load"]


def libsvm(test, name, labels):
    """Row i is of labels[i % len(labels)], whose own feature is large."""
    path = test.path(name)
    with open(path, "w") as file:
        for i in range(60):
            label = labels[i % len(labels)]
            file.write("%d %d:%d 4:1\n" % (label, label, 1 + i % 3))
    return path


class Exported(CheckpointTest):
    def evaluate(self, folder, job, *flags):
        code, out, error = tessera("eval", folder, job, "--json", *flags)
        self.assertEqual(code, 0, error)
        scores = json.loads(out)
        told = "".join(line for line in error.splitlines(True) if not line.startswith("tessera: note: "))
        self.assertEqual(told, "".join("tessera: eval: %s\n" % line for line in scores["differences"]))
        return scores

    def test_labels_keep_their_numbers(self):
        rows, few = libsvm(self, "all.svm", [1, 2, 3]), libsvm(self, "no2.svm", [1, 3])
        folder, model = self.path("checkpoints"), self.path("model.safetensors")
        job = {"name": "labels", "seed": 1,
               "data": {"format": "libsvm", "train": {"features": rows}, "test": {"features": few}},
               "model": {"input": [4], "layers": [{"linear": {"units": 8}}, "relu", {"linear": {"units": 3}}]},
               "train": {"batch_size": 10, "epochs": 30, "optimizer": {"sgd": {"learning_rate": 0.1}}},
               "method": {"data_parallel": {}}, "cluster": {"servers": 1, "workers": 2}}
        report = run_to_end(self, keeping(job, folder, 0))
        self.assertEqual(report["final"]["test_accuracy"], 1)
        path = write_job(self, job)
        same = self.evaluate(folder, path)
        self.assertEqual((same["test_loss"], same["differences"]), (report["final"]["test_loss"], []))
        other = self.evaluate(folder, path, "--set", "data.train.features=" + few)
        self.assertEqual((other["test_loss"], other["test_accuracy"]), (same["test_loss"], 1))
        self.contains(other["differences"][0], OTHER_ROWS)
        # A label that the rows named now do not have.
        flags = ("--set", "data.train.features=" + few, "--set", "data.test.features=" + rows)
        self.assertEqual(self.evaluate(folder, path, *flags)["test_accuracy"], 1)
        self.assertEqual(tessera("export", folder, model, "--quiet"), (0, "", ""))
        facts = load(model)[1]
        self.assertEqual([json.loads(facts[key]) for key in ("labels", "mean", "stddev")], [[1, 2, 3], [0], [1]])
        # Training goes on with those numbers, too, and says of what.
        again = restoring(job, folder)
        again["data"] = dict(job["data"], train={"features": few}, test={"features": rows})
        again["train"] = dict(job["train"], epochs=31)
        logs = self.path("logs")
        report = run_to_end(self, again, "--logs", logs)
        self.assertEqual(report["final"]["test_accuracy"], 1)
        said = ""
        for name in os.listdir(logs):
            with open(os.path.join(logs, name)) as file:
                said += file.read()
        self.assertEqual(said.count("checkpoint: training rows are others than it was trained on"), 1, said)

    def test_constants_of_each_feature_and_of_batch_norms_are_the_checkpoint_s(self):
        folder = self.path("checkpoints")
        job = digits(normalize={"per_feature": True}, epochs=4, evaluate_every=2)
        # 42 is at an evaluation, 84 the job's end as well.
        report = run_to_end(self, keeping(job, folder, 21), env=UNHURRIED)
        self.assertEqual(steps_in(folder), [21, 42, 63, 84])
        path, model = write_job(self, job), self.path("model.safetensors")
        other = ("--set", "data.train.features=" + os.path.join(DIGITS, "test-images-idx3-ubyte.gz"),
                 "--set", "data.train.labels=" + os.path.join(DIGITS, "test-labels-idx1-ubyte.gz"))
        scored = {entry["step"]: entry["test_loss"] for entry in report["history"]}
        for step in steps_in(folder):
            with self.subTest("step %d" % step):
                whole = step_folder(folder, step)
                same = self.evaluate(whole, path)
                self.assertEqual(same["differences"], [])
                self.assertEqual(same["test_loss"], scored.get(step, same["test_loss"]))
                code, _, error = tessera("export", whole, model, "--quiet")
                if step in scored:
                    self.assertEqual((code, error), (0, ""))
                    away = self.evaluate(whole, path, *other)
                    self.assertEqual(away["test_loss"], same["test_loss"])
                    self.contains(away["differences"][0], OTHER_ROWS)
                    continue
                self.assertEqual(code, 2)
                self.contains(error, "has no constants of its batch norms", "give --job JOB.yaml")
                for command in (("eval", whole, path), ("export", whole, model, "--job", path)):
                    code, out, error = tessera(*command, *other)
                    self.assertEqual((code, out), (2, ""))
                    self.contains(error, OTHER_ROWS, "no constants of its batch norms")
                code, _, error = tessera("export", whole, model, "--set", "seed=2")
                self.assertEqual(code, 2)
                self.contains(error, "--set: changes a key of a job, and none is given; name it with --job")
                self.assertEqual(tessera("export", whole, model, "--job", path, "--quiet"), (0, "", ""))
                self.assertEqual(len(json.loads(load(model)[1]["mean"])), 64)
        self.assertEqual(set(scored), {42, 84})

    def test_eval_names_the_keys_in_which_a_job_s_model_is_another(self):
        folder = self.path("checkpoints")
        job = digits(epochs=1)
        job["model"]["layers"].insert(3, {"dropout": {"probability": 0.1}})
        run_to_end(self, keeping(job, folder, 0))
        path = write_job(self, job)
        epsilon = "model.layers.1.batch_norm.epsilon"
        for changed, words in ((epsilon + "=0.5", "has another " + epsilon),
                               ("model.loss=sigmoid_cross_entropy", "has another model.loss"),
                               ("data.normalize.stddev=3", "data.normalize is not what the checkpoint was trained"),
                               ("data.normalize={per_feature: true}", "data.normalize is not what ")):
            with self.subTest(changed):
                self.contains("\n".join(self.evaluate(folder, path, "--set", changed)["differences"]), words)
        for changed in ("model.layers.3.dropout.probability=0.3", "train.epochs=9", "cluster.servers=1"):
            with self.subTest(changed):
                self.assertEqual(self.evaluate(folder, path, "--set", changed)["differences"], [])

    def test_a_resumed_job_ends_with_the_same_bits_and_the_same_constants(self):
        job = digits(epochs=4, evaluate_every=1, normalize={"per_feature": True})
        folder, further = self.path("checkpoints"), self.path("further")
        whole, saved = save_on_the_way(self, job, folder, 21)
        again = dict(job, checkpoint={"restore": step_folder(folder, saved), "directory": further})
        self.assertEqual(sameness(run_to_end(self, again)), sameness(whole))
        models = []
        for name in (folder, further):
            models.append(self.path("model"))
            self.assertEqual(tessera("export", name, models[-1], "--quiet"), (0, "", ""))
            with open(models[-1], "rb") as file:
                models[-1] = file.read()
        self.assertEqual(models[0].split(b'"mean"')[1], models[1].split(b'"mean"')[1])

    def test_subnets_export_what_evaluation_normalises_with(self):
        for keys in ({}, {"evaluation_memory": "1KiB"}):
            with self.case(str(keys)):
                folder, model = self.path("checkpoints-%d" % len(keys)), self.path("model.safetensors")
                job = digits(epochs=4, method={"ist": {"local_steps": 10}}, cluster=keys)
                report = run_to_end(self, keeping(job, folder, 0))
                self.assertEqual(tessera("export", folder, model, "--quiet"), (0, "", ""))
                self.assertEqual(self.right_rows(*load(model)), round(450 * report["final"]["test_accuracy"]))

    def right_rows(self, tensors, facts):
        """Of the digits' test rows, for a model of linear, batch norm, relu and linear layers; in numpy."""
        x = read_idx("test-images-idx3-ubyte.gz", 16).reshape(-1, 64) / 255.0
        x = (x - json.loads(facts["mean"])) / json.loads(facts["stddev"])
        t = {name: values.astype(float) for name, values in tensors.items()}
        x = x @ t["layers.0.weight"].T + t.get("layers.0.bias", 0)
        x = (x - t["layers.1.running_mean"]) / numpy.sqrt(t["layers.1.running_var"] + 1e-5)
        x = numpy.maximum(x * t["layers.1.weight"] + t["layers.1.bias"], 0)
        x = x @ t["layers.3.weight"].T + t["layers.3.bias"]
        return int((x.argmax(axis=1) == read_idx("test-labels-idx1-ubyte.gz", 8)).sum())

    def shipped(self):
        """The job that is shipped, trained; (rows that it found right, the export's path)."""
        folder, model = self.path("checkpoints"), self.path("model.safetensors")
        report = run_to_end(self, os.path.join(JOBS, "digits.yaml"), "--set", "checkpoint.directory=" + folder)
        self.assertEqual(tessera("export", folder, model, "--quiet"), (0, "", ""))
        return round(450 * report["final"]["test_accuracy"]), model

    def test_an_export_in_numpy_finds_the_rows_right_that_the_job_did(self):
        right, model = self.shipped()
        tensors, facts = load(model)
        self.assertEqual(self.right_rows(tensors, facts), right)
        self.assertGreater(right, 420)
        self.assertEqual((tensors["layers.1.num_batches_tracked"].shape, facts["mean"], facts["stddev"]),
                         ((), "[0.0192]", "[0.0236]"))

    @unittest.skipUnless(torch, "python3-torch is not installed")
    def test_an_export_loads_into_the_equal_module_of_pytorch_strictly(self):
        right, model = self.shipped()
        state, facts = docs_loader()(model)
        net = torch.nn.Module()
        net.layers = torch.nn.Sequential(torch.nn.Linear(64, 128, bias=False), torch.nn.BatchNorm1d(128),
                                         torch.nn.ReLU(), torch.nn.Linear(128, 10))
        net.load_state_dict(state, strict=True)
        net.eval()
        x = torch.tensor(read_idx("test-images-idx3-ubyte.gz", 16).reshape(-1, 64) / 255.0)
        x = (x - torch.tensor(facts["mean"])) / torch.tensor(facts["stddev"])
        labels = torch.tensor(read_idx("test-labels-idx1-ubyte.gz", 8).astype(int))
        self.assertEqual(int((net.layers(x.float()).argmax(1) == labels).sum()), right)

    @unittest.skipUnless(torch, "python3-torch is not installed")
    def test_images_load_strictly_with_a_flatten_between(self):
        job = digits(epochs=4)
        job["model"] = {"input": [1, 8, 8], "layers": [
            {"conv2d": {"channels": 6, "kernel": 3, "padding": 1}}, {"batch_norm": {"affine": False}}, "relu",
            {"max_pool": {"kernel": 2}}, {"linear": {"units": 10}}]}
        folder, model = self.path("checkpoints"), self.path("model.safetensors")
        report = run_to_end(self, keeping(job, folder, 0))
        self.assertEqual(tessera("export", folder, model, "--quiet"), (0, "", ""))
        state, facts = docs_loader()(model)
        net = torch.nn.Module()
        net.layers = torch.nn.Sequential()
        for name, layer in (("0", torch.nn.Conv2d(1, 6, 3, padding=1)), ("1", torch.nn.BatchNorm2d(6, affine=False)),
                            ("2", torch.nn.ReLU()), ("3", torch.nn.MaxPool2d(2)), ("flatten", torch.nn.Flatten()),
                            ("4", torch.nn.Linear(96, 10))):
            net.layers.add_module(name, layer)
        net.load_state_dict(state, strict=True)
        net.eval()
        x = torch.tensor(read_idx("test-images-idx3-ubyte.gz", 16).reshape(-1, 1, 8, 8) / 255.0)
        x = ((x - facts["mean"][0]) / facts["stddev"][0]).float()
        labels = torch.tensor(read_idx("test-labels-idx1-ubyte.gz", 8).astype(int))
        right = int((net.layers(x).argmax(1) == labels).sum())
        self.assertEqual(right, round(450 * report["final"]["test_accuracy"]))
        self.assertTrue(math.isfinite(report["final"]["test_loss"]))

    @unittest.skipUnless(torch, "python3-torch is not installed")
    def test_a_model_with_blocks_loads_strictly_into_the_module_of_its_job(self):
        sys.path.insert(0, os.path.join("deploy", "examples"))
        from pytorch_model import module_of  # noqa: E402
        job = digits(epochs=4)
        conv = [{"conv2d": {"channels": 6, "kernel": 3, "padding": 1, "bias": False}}, "batch_norm", "relu"]
        job["model"] = {"input": [1, 8, 8], "layers": conv + [
            {"repeat": {"times": 2, "layers": [{"residual": {"layers": conv}}]}},
            {"residual": {"layers": [{"conv2d": {"channels": 8, "kernel": 3, "stride": 2, "padding": 1}}, "batch_norm"],
                          "shortcut": [{"conv2d": {"channels": 8, "kernel": 1, "stride": 2}}]}},
            {"concat": [[], conv, [{"max_pool": {"kernel": 3, "stride": 1, "padding": 1}}]]}, "avg_pool",
            {"linear": {"units": 10}}]}
        folder, model = self.path("checkpoints"), self.path("model.safetensors")
        report = run_to_end(self, keeping(job, folder, 0))
        self.evaluate(folder, write_job(self, job))
        self.assertEqual(tessera("export", folder, model, "--quiet"), (0, "", ""))
        state, facts = docs_loader()(model)
        self.assertIn("layers.3.1.0.layers.0.weight", state)
        net = module_of(job["model"])
        net.load_state_dict(state, strict=True)
        net.eval()
        x = torch.tensor(read_idx("test-images-idx3-ubyte.gz", 16).reshape(-1, 1, 8, 8) / 255.0)
        x = ((x - facts["mean"][0]) / facts["stddev"][0]).float()
        labels = torch.tensor(read_idx("test-labels-idx1-ubyte.gz", 8).astype(int))
        right = int((net(x).argmax(1) == labels).sum())
        self.assertEqual(right, round(450 * report["final"]["test_accuracy"]))


if __name__ == "__main__":
    unittest.main()
