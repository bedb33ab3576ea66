"""What a person meets first: a job file for data that is there, words for data that is not, a bar, pages, and curves
that other programs read."""
import csv
import fcntl
import glob
import gzip
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unittest
import xml.dom.minidom
import zlib

import numpy

from cluster import DIGITS, ENDLESS, ROOT, SOON, TESSERA, Cluster, Process, Test, digits, tessera, write_job
from event_reader import events

ROWS, TEST_ROWS, SIDE, CLASSES = 96, 24, 8, 3


def png(pixels):
    """A picture of three channels, from an array of (height, width, 3) bytes."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def idx(array):
    return struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(">%dI" % array.ndim, *array.shape) + array.tobytes()


class Sets:
    """Small data sets in all formats: noise that is brighter where the class says."""

    def __init__(self, folder):
        self.folder = folder
        self.draw = numpy.random.RandomState(1)

    def rows(self, count, shape=(SIDE, SIDE)):
        labels = (numpy.arange(count) % CLASSES).astype(numpy.uint8)
        values = self.draw.randint(0, 100, (count,) + shape).astype(numpy.uint8)
        values.reshape(count, CLASSES if values[0].size % CLASSES == 0 else 1, -1)[
            numpy.arange(count), labels if values[0].size % CLASSES == 0 else 0] += 80
        return values, labels

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())

    def sets(self):
        return (("train", ROWS), ("test", TEST_ROWS))

    def idx(self):
        for name, count in self.sets():
            values, labels = self.rows(count)
            self.write(name + "-images-idx3-ubyte.gz", gzip.compress(idx(values)))
            self.write(name + "-labels-idx1-ubyte.gz", gzip.compress(idx(labels)))

    def npy(self):
        for name, count in self.sets():
            values, labels = self.rows(count, (3, 16, 16))
            numpy.save(os.path.join(self.folder, "x_%s.npy" % name), values.astype(numpy.float32))
            numpy.save(os.path.join(self.folder, "y_%s.npy" % name), labels.astype(numpy.int64))

    def csv(self):
        for name, count in self.sets():
            values, labels = self.rows(count, (6,))
            lines = ["class,a,b,c,d,e,f"] + ["%d,%s" % (label, ",".join(map(str, row)))
                                             for row, label in zip(values, labels)]
            self.write(name + ".csv", "\n".join(lines) + "\n")

    def numbers(self):
        for name, count in self.sets():
            values, _ = self.rows(count, (4,))
            self.write(name + ".csv", "".join("%s,%.3f\n" % (",".join(map(str, row)), row.sum() / 7) for row in values))

    def libsvm(self):
        for name, count in (("mine", ROWS), ("mine.t", TEST_ROWS)):
            values, labels = self.rows(count, (9,))
            self.write(name, "".join("%+d %s\n" % (2 * (label > 0) - 1, " ".join(
                "%d:%d" % (1 + i, value) for i, value in enumerate(row) if value > 40)) for row, label in
                zip(values, labels)))

    def xc(self):
        for name, count in self.sets():
            self.write(name + ".txt", "%d 50 7\n" % count + "".join(
                "%d,%d %d:1 %d:0.5\n" % (i % 5, 5 + i % 2, i % 25, 25 + i % 25) for i in range(count)))

    def cifar(self):
        for name, count in (("data_batch_1", ROWS), ("data_batch_2", ROWS), ("test_batch", TEST_ROWS)):
            values, labels = self.rows(count, (3072,))
            self.write(name + ".bin", b"".join(bytes([label]) + row.tobytes() for row, label in zip(values, labels)))

    def images(self):
        for name, count in (("train", ROWS), ("val", TEST_ROWS)):
            values, labels = self.rows(count, (12, 12, 3))
            for i, (row, label) in enumerate(zip(values, labels)):
                self.write("%s/%s/%d.png" % (name, ("ants", "bees", "moths")[label], i), png(row))

    def text(self):
        words = ("to be or not to be that is the question " * 40).split(" ")
        for name, count in (("train.txt", 300), ("test.txt", 120)):
            self.write(name, " ".join(words[:count]) + "\n")

    def tokens(self):
        for name, count in (("train.bin", 2000), ("val.bin", 500)):
            self.write(name, (numpy.arange(count) % 17).astype("<u2").tobytes())


class Init(Test):
    """The job file that `tessera init` writes is right, and trains."""

    test_max = 300

    def init(self, data, *more):
        job = self.path("job.yaml")
        if os.path.exists(job):
            os.remove(job)
        code, out, error = tessera("init", *data, "--out", job, *more)
        self.assertEqual(code, 0, out + error)
        code, checked, error = tessera("check", job, "--json")
        self.assertEqual(code, 0, checked + error)
        code, _, error = tessera("run", job, "--set", "train.epochs=1", "--report", self.path("r.json"), "--quiet",
                                 within=120)
        self.assertEqual(code, 0, error)
        with open(job) as file:
            return out, file.read(), json.loads(checked)["job"]

    def test_each_format_gives_a_job_that_trains(self):
        expected = {
            "idx": (["conv2d", "batch_norm", "{units: 3}", "mean: 0.", "# channels, height, width"], [1, 8, 8]),
            "npy": (["conv2d", "per_feature: true", "{units: 3}"], [3, 16, 16]),
            "csv": (["label_column: class", "per_feature: true", "{units: 3}"], [6]),
            "numbers": (["mean_squared_error", "{units: 1}"], [4]),
            "libsvm": (["{units: 2}", "features: mine"], [9]),
            "xc": (["sigmoid_cross_entropy", "{units: 7}"], [50]),
            "cifar": (["conv2d", "[data_batch_1.bin, data_batch_2.bin]", "{units: 3}"], [3, 32, 32]),
            "images": (["resize: 64", "crop: 64", "{units: 3}", "test: {features: val}"], [3, 64, 64]),
            "text": (["tokenizer: characters", "attention", "vocabulary: 14"], None),
            "tokens": (["format: tokens", "vocabulary: 17"], None),
        }
        os.makedirs(self.path("nothing"))
        formats = re.search(r"want files of (.*) or (\w+) \(", tessera("init", self.path("nothing"))[2])
        self.assertEqual(set(expected) - {"numbers"}, set(formats.group(1).split(", ") + [formats.group(2)]))
        for name, (parts, shape) in expected.items():
            with self.case(name):
                folder = self.path("set_" + name)
                os.makedirs(folder)
                getattr(Sets(folder), name)()
                _, text, job = self.init([folder])
                self.contains(text, *parts)
                self.assertEqual([int(size) for size in job["model"].get("input", [])], shape or [])
                self.assertTrue(all(len(line) < 130 for line in text.split("\n")), text)

    def test_the_built_in_digits(self):
        out, text, job = self.init([DIGITS])
        self.assertEqual(job["data"]["format"], "idx")
        self.contains(out, "1347 training rows of [1, 8, 8], 450 test rows, 10 classes")
        with open(self.path("r.json")) as file:
            self.assertGreater(json.load(file)["final"]["test_accuracy"], 0.5)
        out, text, job = self.init([os.path.join(DIGITS, "digits.csv.gz")])
        self.contains(text, "format: csv", "No file is called test or validation", "{units: 10}")

    def test_what_cannot_be_used_is_told(self):
        os.makedirs(self.path("empty"))
        with open(self.path("empty/odd.dat"), "wb") as file:
            file.write(b"\x01\x02\xff\xfe\x00")
        code, _, error = tessera("init", self.path("empty"), "--out", self.path("job.yaml"))
        self.assertEqual(code, 2)
        self.contains(error, "saw odd.dat", "want files of idx, csv, libsvm, xc, cifar, npy, images, tokens or text")
        self.assertFalse(os.path.exists(self.path("job.yaml")))
        code, _, error = tessera("init", self.path("nowhere"))
        self.assertEqual(code, 2)
        self.assertIn("No such file", error)
        # What is there stays.
        with open(self.path("job.yaml"), "w") as file:
            file.write("mine\n")
        code, _, error = tessera("init", DIGITS, "--out", self.path("job.yaml"))
        self.assertEqual(code, 2)
        self.assertIn("is there already", error)
        code, _, error = tessera("init", DIGITS, "--out", self.path("job.yaml"), "--force")
        self.assertEqual(code, 0, error)


class Curves(Test):
    """Other programs read what reports and jobs have."""

    def run_digits(self, name, **keys):
        job = digits(epochs=3, evaluate_every=1, **keys)
        path = self.path(name + ".json")
        code, out, error = tessera("run", write_job(self, job), "--report", path, "--tensorboard",
                                   self.path("events_" + name), within=SOON)
        self.assertEqual(code, 0, out + error)
        return path

    def read(self, folder):
        paths = glob.glob(os.path.join(self.path(folder), "events.out.tfevents.*"))
        self.assertEqual(len(paths), 1)
        return events(paths[0])

    def test_plots_tables_and_event_files(self):
        first, second = self.run_digits("first"), self.run_digits("second", rate=0.05)
        with open(first) as file:
            report = json.load(file)
        traffic = report["traffic"]["pull_payload_bytes"] + report["traffic"]["push_payload_bytes"]

        code, out, error = tessera("history", first, "--csv")
        self.assertEqual(code, 0, error)
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual(len(rows), len(report["history"]))
        for row, entry in zip(rows, report["history"]):
            for key in ("seconds", "step", "test_loss", "test_accuracy"):
                self.assertEqual(float(row[key]), entry[key])
            self.assertEqual(row["perplexity"], "")
        self.assertEqual(int(rows[-1]["bytes"]), traffic)
        self.assertEqual(int(rows[-1]["examples"]), report["examples"])
        code, out, error = tessera("history", first, "--json")
        self.assertEqual([each["step"] for each in json.loads(out)["history"]], [each["step"] for each in
                                                                              report["history"]])
        self.assertIn("   epoch    seconds  train loss", tessera("history", first)[1])

        # The run wrote as it went what is written now of the report.
        code, out, error = tessera("history", first, "--tensorboard", self.path("again"))
        self.assertEqual((code, out), (0, ""), error)
        live, again = self.read("events_first"), self.read("again")
        self.assertEqual(live[0]["version"], "brain.Event:2")
        for found in (live, again):
            self.assertEqual([each["step"] for each in found[1:]], [each["step"] for each in report["history"]])
            for event, entry in zip(found[1:], report["history"]):
                self.assertAlmostEqual(event["scalars"]["accuracy/test"], entry["test_accuracy"], places=6)
                self.assertAlmostEqual(event["scalars"]["loss/test"], entry["test_loss"], places=4)
                self.assertAlmostEqual(event["scalars"]["loss/train"], entry["train_loss"], places=4)
                self.assertNotIn("perplexity/test", event["scalars"])
                self.assertAlmostEqual(event["wall_time"], time.time(), delta=600)
        self.assertAlmostEqual(again[-1]["scalars"]["job/bytes"] / traffic, 1, places=5)

        plot = self.path("plot.svg")
        for x, y in (("seconds", "accuracy"), ("bytes", "loss"), ("examples", "loss"), ("steps", "accuracy")):
            code, out, error = tessera("plot", first, second, "--x", x, "--y", y, "--out", plot)
            self.assertEqual((code, out), (0, ""), error)
            document = xml.dom.minidom.parse(plot)
            self.assertEqual(len(document.getElementsByTagName("title")), 2)
        with open(plot) as file:
            self.contains(file.read(), "digits-test (data_parallel) " + first, "prefers-color-scheme: dark")
        self.assertIn(">one</text>", tessera("plot", first, "--label", "one")[1])
        # Loss falls by ratios. No job has a place for its begin on a logarithmic axis of seconds.
        self.assertEqual(tessera("plot", first, "--y", "loss", "--log-x", "--log-y", "--out", plot)[0], 0)
        xml.dom.minidom.parse(plot)
        table = self.path("table.csv")
        with open(table, "w") as file:
            file.write("workers,<ours>,theirs\n1,1,1\n2,1.5,\n4,3,2\n")
        code, out, error = tessera("plot", "--table", table, "--y", "times as fast", "--log-x")
        self.assertEqual((code, error), (0, ""))
        self.assertEqual(len(xml.dom.minidom.parseString(out).getElementsByTagName("title")), 2)
        self.contains(out, ">times as fast</text>", ">workers</text>", ">&lt;ours&gt;</text>")
        for arguments, words in (((first, "--y", "perplexity"), "has no perplexity"),
                                 ((first, "--x", "hours"), "want seconds"), (("nowhere",), "No such file"),
                                 ((write_job(self, digits()),), "it is no report"),
                                 ((), "got 0 reports and no --table, want reports or a table"),
                                 ((first, "--table", table), "got 1 report and a --table"),
                                 (("--table", first), "line 1: got"), (("--table", table, "--out", table), "--out"),
                                 (("--table", table, "--label", "one"), "want none or one for each of 2 lines"),
                                 ((first, "--out", first), "--out")):
            code, out, error = tessera("plot", *arguments)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(words, error)

    def test_events_of_a_job_that_runs(self):
        cluster = Cluster(self, digits(epochs=ENDLESS, evaluate_every=20), workers=2)
        address = cluster.coordinator
        cluster.await_status("an evaluation", lambda status: len(status.get("history", [])) > 0)
        code, _, error = tessera("status", address, "--json", "--tensorboard", self.path("once"))
        self.assertEqual(code, 0, error)
        self.assertGreater(len(self.read("once")), 1)
        code, out, error = tessera("history", address, "--csv")
        self.assertEqual(code, 0, error)
        self.assertGreater(len(out.split("\n")), 2)
        watching = Process(self, "watch", [TESSERA, "status", address, "--watch", "--json", "--tensorboard",
                                           self.path("watched")])
        watching.await_output('"job"')
        cluster.drain()
        report = cluster.finish()
        watching.expect_exit(0)
        self.assertEqual(self.read("watched")[-1]["step"], report["history"][-1]["step"])

    def test_a_folder_that_cannot_be_written_is_refused_before_the_job(self):
        with open(self.path("file"), "w"):
            pass
        code, _, error = tessera("run", write_job(self, digits()), "--tensorboard", self.path("file"))
        self.assertEqual(code, 2)
        self.assertIn("--tensorboard: got", error)


def on_terminal(command, columns, env):
    """What a command writes to a terminal of so many columns, and its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.STDOUT,
                               env=dict(os.environ, TERM="xterm", **env))
    os.close(theirs)
    out = b""
    deadline = time.time() + 60
    while time.time() < deadline:
        if not select.select([ours], [], [], 1)[0]:
            continue
        try:
            data = os.read(ours, 65536)
        except OSError:  # The other end is closed.
            break
        if not data:
            break
        out += data
    os.close(ours)
    return process.wait(60), out.decode()


class Words(Test):
    def test_a_bar_on_a_terminal_and_none_on_a_pipe(self):
        job = write_job(self, digits(epochs=100, units=400, evaluate_every=0))
        code, out = on_terminal([TESSERA, "run", job], 100, {})
        self.assertEqual(code, 0, out)
        bars = re.findall(r"\[(#*)(\.*)\] +(\d+)%", out)
        self.assertTrue(bars, out)
        self.assertEqual(bars[-1][0].count("#") * 100 // len(bars[-1][0] + bars[-1][1]) // 10, int(bars[-1][2]) // 10)
        self.assertIn(" examples/s", out)
        drawn = [line for line in re.split(r"\r\x1b\[K|\r\n", out) if line.startswith("training")]
        self.assertTrue(all(len(line) < 100 for line in drawn), drawn)
        code, out = on_terminal([TESSERA, "run", job], 40, {})
        self.assertEqual(code, 0, out)
        self.assertFalse(re.findall(r"\[#", out), out)
        code, out, error = tessera("run", write_job(self, digits()))
        self.assertEqual(code, 0, error)
        self.assertNotIn("[#", out)
        self.assertNotIn("\x1b", out + error)

    def test_no_color(self):
        command = [TESSERA, "doctor", write_job(self, digits())]
        _, colored = on_terminal(command, 100, {"NO_COLOR": ""})
        self.assertIn("\x1b[32mok\x1b[0m", colored)
        for columns in (60, 100):
            _, plain = on_terminal(command, columns, {"NO_COLOR": "1"})
            self.assertNotIn("\x1b[", plain)
        self.assertNotIn("\x1b", tessera(*command[1:])[1])

    def test_missing_data_is_named_with_what_gets_it(self):
        os.makedirs(self.path("deploy/jobs"))
        with open(os.path.join(ROOT, "deploy/jobs/mnist.yaml")) as file:
            text = file.read()
        with open(self.path("deploy/jobs/mnist.yaml"), "w") as file:
            file.write(text)
        with open(self.path("deploy/fetch_data.sh"), "w") as file:
            file.write("#!/bin/sh\n")
        wanted = "get it with: %s mnist" % os.path.join(os.path.realpath(self.folder), "deploy/fetch_data.sh")
        job = os.path.join(os.path.realpath(self.folder), "deploy/jobs/mnist.yaml")
        for command in ("run", "check", "simulate"):
            code, _, error = tessera(command, job)
            self.assertEqual(code, 2)
            self.assertIn("tessera: the data is not there; " + wanted, error)
        code, out, _ = tessera("check", job, "--json")
        self.assertEqual(code, 2)
        checked = json.loads(out)
        self.assertEqual((checked["right"], checked["advice"]), (False, wanted))
        self.assertEqual(checked["errors"][0]["key"], "data.directory")
        code, out, _ = tessera("doctor", job, "--json")
        self.assertEqual(code, 1)
        found = json.loads(out)
        problems = [each for each in found["findings"] if each["kind"] == "problem"]
        self.assertEqual(found["problems"], len(problems))
        self.assertTrue(any(wanted in each["advice"] for each in problems), problems)

    def test_a_job_that_is_right_as_json(self):
        code, out, error = tessera("check", write_job(self, digits()), "--json")
        self.assertEqual(code, 0, error)
        checked = json.loads(out)
        text = tessera("check", write_job(self, digits()))[1]
        self.assertIn("# digest      " + checked["digest"], text)
        self.assertIn("# method      " + checked["method"], text)
        self.assertEqual(checked["job"]["name"], "digits-test")
        self.assertEqual(re.findall("# traffic     (.*)", text), checked["traffic"])
        code, out, _ = tessera("doctor", write_job(self, digits()), "--json")
        self.assertEqual((code, json.loads(out)["problems"]), (0, 0))

    def test_pages(self):
        code, out, error = tessera("help")
        self.assertEqual(code, 0, error)
        for topic in ("watching", "tutorial", "methods", "design/shard", "reference/job_keys"):
            self.assertIn("\n  %s " % topic, out)
        code, watching, error = tessera("help", "watching")
        self.assertEqual(code, 0, error)
        self.contains(watching, "Watching\n========\n", "tessera status")
        self.assertEqual(tessera("help", "status")[1], watching)
        code, out, error = tessera("help", "watchin")
        self.assertEqual((code, out), (2, ""))
        self.assertIn('did you mean "watching"?', error)

    def test_a_checkpoint_as_json(self):
        job = digits(epochs=ENDLESS)
        job["checkpoint"] = {"directory": self.path("ckpt")}
        cluster = Cluster(self, job, workers=2)
        cluster.await_step(20)
        code, out, error = tessera("checkpoint", cluster.coordinator, "--json")
        self.assertEqual(code, 0, error)
        written = json.loads(out)
        self.assertEqual(written["number"], 1)
        self.assertGreater(written["bytes"], 0)
        cluster.drain()
        cluster.finish()


if __name__ == "__main__":
    unittest.main()
