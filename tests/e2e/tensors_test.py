"""Jobs of tensors: the file is the model, the workers are programs of their own."""
import json
import os
import re
import signal
import struct
import sys
import unittest

import numpy as np

from cluster import (DIGITS, ROOT, SERVER, WORKER, Cluster, Process, Test, await_true, children_of, digits,
                     read_tensors, run_to_end, status_of, tessera, write_job)

CLIENT = os.path.join(ROOT, "tests/e2e/tensor_worker.py")
SHAPES = {"scale": [], "fc.bias": [5], "fc.weight": [5, 4], "conv.weight": [3, 2, 3, 3], "one": [1, 1, 7]}


def initial(seed=0):
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def write_tensors(path, tensors, dtype="F32"):
    header, data = {}, b""
    for name, values in tensors.items():
        text = np.ascontiguousarray(values, {"F32": "<f4", "F16": "<f2", "I64": "<i8"}[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(np.shape(values)),
                        "data_offsets": [len(data), len(data) + len(text)]}
        data += text
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return path


def job_of(path, servers=2, workers=2, steps=12, method=None, checkpoint=None, lease="5s", cluster=None, **train):
    job = {
        "name": "own",
        "model": {"tensors": path},
        "train": dict({"steps": steps, "optimizer": {"sgd": {"learning_rate": 0.125}}}, **train),
        "method": method or "data_parallel",
        "cluster": dict({"servers": servers, "workers": workers, "lease_timeout": lease}, **(cluster or {})),
    }
    if checkpoint:
        job["checkpoint"] = checkpoint
    return job


class Tensors(Test):
    def setUp(self):
        super().setUp()
        self.file = write_tensors(self.path("init.safetensors"), initial())

    def command(self, job, *extra):
        """The shell command of each worker of a job, a dictionary or a path."""
        path = job if isinstance(job, str) else write_job(self, job, "digest.yaml")
        code, out, error = tessera("check", path)
        self.assertEqual(code, 0, out + error)
        digest = re.search(r"^# digest +(\S+)", out, re.M).group(1)
        folder = re.search(r"^checkpoint:\n +directory: (\S+)", out, re.M).group(1)
        checkpoints = [] if folder == '""' else ["--checkpoints", folder]
        return " ".join([sys.executable, CLIENT, ROOT, digest] + checkpoints + list(extra))

    def exported(self, folder):
        out = self.path("out.safetensors")
        code, _, error = tessera("export", folder, out)
        self.assertEqual(code, 0, error)
        return read_tensors(out)

    def values(self, tensors):
        return {name: np.frombuffer(data, "<f4").reshape(shape) for name, (shape, data) in tensors.items()}

    def test_the_servers_train_what_the_workers_push_and_export_it_by_its_names(self):
        folder = self.path("checkpoints")
        job = job_of(self.file, checkpoint={"directory": folder}, steps_per_epoch=5)
        report = run_to_end(self, job, "--worker", self.command(job))
        self.assertEqual((report["outcome"], report["steps"]), ("finished", 12))
        self.assertEqual(report["members"]["joined"], 2)
        # Epochs of 5 steps: evaluations after each, and at the end.
        self.assertEqual([(entry["step"], entry["epoch"]) for entry in report["history"]],
                         [(5, 1.0), (10, 2.0), (12, 2.4)])
        tensors = self.exported(folder)
        self.assertEqual({name: shape for name, (shape, _) in tensors.items()}, SHAPES)
        for name, values in self.values(tensors).items():
            expected = initial()[name]
            for _ in range(12):
                expected = expected - np.float32(0.125) * (expected - np.float32(0.5))
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
        # The score is the mean over the workers' rows: rank 0 has one and rank 1 two.
        values = np.concatenate([each.ravel() for each in self.values(tensors).values()]).astype(np.float64)
        score = (np.abs(values).sum() + np.abs(values - 1).sum()) / 3
        self.assertAlmostEqual(report["history"][-1]["test_accuracy"], score, places=4)

    def test_a_job_goes_on_from_its_checkpoint_to_the_same_bits(self):
        whole, half = self.path("whole"), self.path("half")
        job = job_of(self.file, checkpoint={"directory": whole}, steps_per_epoch=6)
        run_to_end(self, job, "--worker", self.command(job))
        job = job_of(self.file, steps=6, checkpoint={"directory": half}, steps_per_epoch=6)
        run_to_end(self, job, "--worker", self.command(job, "--steps 6"))
        rest = job_of(self.file, checkpoint={"directory": self.path("rest"), "restore": half}, steps_per_epoch=6)
        report = run_to_end(self, rest, "--worker", self.command(rest))
        self.assertEqual(report["steps"], 12)
        self.assertEqual(self.exported(self.path("rest")), self.exported(whole))

    def test_an_export_begins_a_job(self):
        folder = self.path("checkpoints")
        job = job_of(self.file, steps=2, checkpoint={"directory": folder})
        run_to_end(self, job, "--worker", self.command(job, "--steps 2"))
        out = self.path("next.safetensors")
        self.assertEqual(tessera("export", folder, out)[0], 0)
        job = job_of(out, steps=1, method={"local_sgd": {"local_steps": 1}},
                     checkpoint={"directory": self.path("next")})
        run_to_end(self, job, "--worker", self.command(job, "--steps 1 --kind delta"))
        # The mean of the changes 0.5 and 1.5 is added.
        before, after = self.values(read_tensors(out)), self.values(self.exported(self.path("next")))
        for name in SHAPES:
            np.testing.assert_array_equal(after[name], before[name] + np.float32(1))

    def test_a_score_that_is_low_enough_ends_the_job(self):
        job = job_of(self.file, steps_per_epoch=1, target_accuracy=1e9)
        job["model"]["evaluation"] = "minimise"
        report = run_to_end(self, job, "--worker", self.command(job))
        self.assertEqual((report["outcome"], report["steps"]), ("finished", 1))

    def test_what_was_set_reaches_the_workers(self):
        job = job_of(self.file)
        path = write_job(self, job)
        changed = write_job(self, job_of(self.file, steps=3), "changed.yaml")
        report = run_to_end(self, path, "--set", "train.steps=3", "--worker", self.command(changed, "--steps 3"))
        self.assertEqual(report["steps"], 3)

    def test_standbys_follow_the_shards(self):
        folder = self.path("checkpoints")
        job = job_of(self.file, checkpoint={"directory": folder}, cluster={"replicas": 1})
        run_to_end(self, job, "--worker", self.command(job))
        alone = self.path("alone")
        job = job_of(self.file, checkpoint={"directory": alone})
        run_to_end(self, job, "--worker", self.command(job))
        self.assertEqual(self.exported(folder), self.exported(alone))

    def test_without_a_command_it_waits_for_workers(self):
        job = job_of(self.file, workers=1)
        path = write_job(self, job)
        command = self.command(path)
        run = Process(self, "tessera run", [os.path.join(ROOT, "deploy/cli/tessera"), "run", path])
        run.await_output("waiting for 1 worker: start your own programs")
        self.assertEqual(len(children_of(run.pid)), 2)
        address = re.search(r"TESSERA_COORDINATOR=(\S+)", run.output()).group(1)
        worker = Process(self, "worker", ["sh", "-c", command],
                         env={"TESSERA_JOB": path, "TESSERA_RANK": "0", "TESSERA_COORDINATOR": address})
        worker.expect_exit(0)
        run.expect_exit(0)

    def test_a_signal_ends_the_wait(self):
        run = Process(self, "tessera run", [os.path.join(ROOT, "deploy/cli/tessera"), "run",
                                            write_job(self, job_of(self.file))])
        run.await_output("waiting for 2 workers")
        children = children_of(run.pid)
        run.signal(signal.SIGTERM)
        run.exit_code()
        await_true("no child is left", lambda: not any(os.path.exists("/proc/%d" % pid) for pid in children))

    def test_a_worker_that_fails_is_told_with_its_last_lines(self):
        path = write_job(self, job_of(self.file))
        code, _, error = tessera("run", path, "--worker", self.command(path, "--exit 3"))
        self.assertEqual(code, 1)
        self.contains(error, "ended with exit code 3", "its last lines:", "of %s" % path)
        code, _, error = tessera("run", path, "--worker", "echo wrong flag; exit 2")
        self.assertEqual(code, 2)
        self.contains(error, "wrong flag")

    def test_nothing_of_a_worker_is_left_behind(self):
        path = write_job(self, job_of(self.file))
        run = Process(self, "tessera run", [os.path.join(ROOT, "deploy/cli/tessera"), "run", path, "--worker",
                                            "sleep 1000; true"])
        sleeping = []

        def sleep():
            workers = [pid for pid, command in children_of(run.pid).items() if command[0] == "/bin/sh"]
            sleeping[:] = [child for pid in workers for child in children_of(pid)]
            return len(sleeping) == 2

        await_true("workers sleep", sleep, explain=run.output)
        run.signal(signal.SIGINT)
        run.signal_again(signal.SIGINT)
        run.exit_code()
        await_true("no sleep is left", lambda: not any(os.path.exists("/proc/%d" % pid) for pid in sleeping))

    def test_check_and_doctor_know_it(self):
        path = write_job(self, job_of(self.file))
        code, out, _ = tessera("check", path)
        self.assertEqual(code, 0)
        self.contains(out, "# parameters  87 in 5 tensors", "tensors: " + self.file, "evaluation: maximise")
        code, out, _ = tessera("doctor", path)
        self.assertEqual(code, 0, out)
        self.contains("".join(out.split()), "model.tensors:\"%s\"" % self.file, "87parameters", "2serverswith")

    def test_what_wants_layers_says_that_there_are_none(self):
        folder = self.path("checkpoints")
        job = job_of(self.file, steps=1, checkpoint={"directory": folder})
        run_to_end(self, job, "--worker", self.command(job, "--steps 1"))
        path = write_job(self, job)
        for command in (["eval", folder, path], ["sample", folder], ["simulate", path],
                        ["plan", path, "--nodes", "4", "--bandwidth", "1Gbit"]):
            code, out, error = tessera(*command)
            self.assertEqual((code, out), (2, ""), command)
            self.contains(error, "%s: model.tensors: a job of tensors has no layers" % command[0])
        worker = Process(self, "worker", [WORKER, "--job", path])
        self.contains(worker.expect_exit(2), "the model is the workers' own; start your program",
                      "docs/own_models.md")

    def test_files_that_are_no_models_are_refused_by_name(self):
        wrong = write_tensors(self.path("wrong.safetensors"), {"steps": np.zeros(2), "mask": np.zeros(3)}, "I64")
        code, _, error = tessera("check", write_job(self, job_of(wrong)))
        self.assertEqual(code, 2)
        self.contains(error, "tensor \"mask\" is of I64", "tensor \"steps\" is of I64", "keep it local")

    def test_servers_with_other_files_do_not_join(self):
        other = write_tensors(self.path("other.safetensors"), initial(1))
        cluster = Cluster(self, job_of(self.file), start=False)
        cluster.start_server(0)
        server = Process(self, "server 1", [SERVER, "--job", write_job(self, job_of(other), "other.yaml"), "--rank",
                                            "1", "--listen", "127.0.0.1:0", "--coordinator", cluster.coordinator])
        self.assertNotEqual(server.exit_code(), 0)
        self.contains(server.output(), "model.tensor_layout.sum")

    def test_a_server_without_the_file_fetches_it(self):
        job = job_of(self.file, workers=1)
        cluster = Cluster(self, job, start=False)
        elsewhere = write_job(self, job_of(self.path("none.safetensors"), workers=1), "elsewhere.yaml")
        cluster.start_server(0)
        cluster.path = elsewhere
        server = cluster.start_server(1)
        self.assertIn("fetched the coordinator's tensors", server.output())
        worker = Process(self, "worker", ["sh", "-c", self.command(job)],
                         env={"TESSERA_JOB": cluster.path, "TESSERA_RANK": "0",
                              "TESSERA_COORDINATOR": cluster.coordinator})
        worker.expect_exit(0)
        report = cluster.finish()
        self.assertEqual(report["outcome"], "finished")
        # Server 0 has nobody to ask.
        first = Process(self, "server 0", [SERVER, "--job", elsewhere, "--rank", "0", "--listen", "127.0.0.1:0"])
        self.contains(first.expect_exit(2), "model.tensors: got", "want a safetensors file that can be read",
                      "No such file or directory")

    def test_the_values_are_those_of_half_precision_too(self):
        halves = {name: values.astype(np.float16).astype(np.float32) for name, values in initial().items()}
        full = job_of(write_tensors(self.path("full.safetensors"), halves))
        half = job_of(write_tensors(self.path("half.safetensors"), halves, "F16"))
        self.assertEqual(self.command(full), self.command(half))


if __name__ == "__main__":
    unittest.main()
