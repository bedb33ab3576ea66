"""`tessera import`: the model of another program becomes what a job of layers begins with."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, os.path.join("tests", "common", "checkpoint"))
import safetensors_reader  # noqa: E402

TESSERA = os.path.join("deploy", "cli", "tessera")
WRITE = os.path.join("tests", "server", "checkpoint", "write_checkpoints")
JOB = """
name: imported
data: {format: idx, directory: none, train: {features: a, labels: b}, test: {features: c, labels: d}}
model:
  input: [%(inputs)d]
  layers: [%(layers)s]
train: {batch_size: 4, epochs: 1, optimizer: {sgd: {learning_rate: 0.1}}}
method: data_parallel
cluster: {servers: 1, workers: 1}
"""
NAMES = {numpy.dtype("<f4"): "F32", numpy.dtype("<f2"): "F16", numpy.dtype("<i8"): "I64"}


def save(path, tensors):
    """From the published layout alone, as the reader."""
    header, body = {}, b""
    for name, values in tensors.items():
        data = values.tobytes()
        header[name] = {"dtype": NAMES[values.dtype], "shape": list(values.shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + body)


def numbers(*shape, dtype="<f4"):
    return numpy.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


class Import(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.model, self.out = self.path("model.safetensors"), self.path("out.safetensors")
        self.job = self.path("job.yaml")
        self.write_job()

    def path(self, name):
        return os.path.join(self.directory, name)

    def write_job(self, inputs=3, layers="linear: {units: 4, bias: false}, batch_norm, relu, linear: {units: 2}",
                  more=""):
        with open(self.job, "w") as file:
            file.write(JOB % {"inputs": inputs, "layers": layers} + more)

    def tensors(self):
        return {"fc1.weight": numbers(4, 3), "bn.weight": numbers(4), "bn.bias": numbers(4, dtype="<f2"),
                "bn.running_mean": numbers(4), "bn.num_batches_tracked": numpy.array(7, "<i8"),
                "fc2.weight": numbers(2, 4), "fc2.bias": numbers(2)}

    maps = ("--map", "fc1=layers.0", "--map", "bn=layers.1", "--map", "fc2=layers.3")

    def imported(self, *arguments):
        done = subprocess.run([TESSERA, "import", *arguments, "--layers", self.job], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_a_model_with_names_of_its_own_has_the_layers_names_and_its_own_bits(self):
        tensors = self.tensors()
        save(self.model, tensors)
        code, out, error = self.imported(self.model, self.out, *self.maps)
        self.assertEqual((code, error), (0, ""))
        self.assertEqual(out.splitlines(), [
            "%s: 30 parameters in 5 tensors" % self.out,
            "not used, as the job calibrates its batch norms: bn.running_mean, bn.num_batches_tracked",
            "begin %s with it: --set model.init=%s" % (self.job, self.out)])
        got, metadata = safetensors_reader.load(self.out)
        names = {"layers.0.weight": "fc1.weight", "layers.1.weight": "bn.weight", "layers.1.bias": "bn.bias",
                 "layers.3.weight": "fc2.weight", "layers.3.bias": "fc2.bias"}
        self.assertEqual(list(got), list(names))
        self.assertEqual(metadata, {"format": "pt"})
        for name, own in names.items():
            self.assertEqual(got[name].dtype, numpy.float32)
            self.assertEqual(got[name].tobytes(), tensors[own].astype(numpy.float32).tobytes(), name)

    def test_an_export_comes_back_as_it_is(self):
        # What write_checkpoints writes: one layer of 7 units on 5 inputs, whose bias an export multiplies by a half.
        self.write_job(inputs=5, layers="linear: {units: 7}")
        subprocess.run([WRITE, self.directory, "--shards", "3", "--keep", "2", "100", "200"], check=True)
        done = subprocess.run([TESSERA, "export", self.directory, self.model, "--quiet"])
        self.assertEqual(done.returncode, 0)
        want = safetensors_reader.load(self.model)[0]
        for source in (self.model, self.directory, self.path("step-000000000200")):
            with self.subTest(source=source):
                self.assertEqual(self.imported(source, self.out, "--quiet"), (0, "", ""))
                got = safetensors_reader.load(self.out)[0]
                self.assertEqual({name: values.tobytes() for name, values in got.items()},
                                 {name: values.tobytes() for name, values in want.items()})
                os.remove(self.out)

    def test_without_a_place_the_file_is_the_one_that_the_job_begins_with(self):
        save(self.model, self.tensors())
        code, out, error = self.imported(self.model, *self.maps)
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(error, "tessera: OUT: is not given, and %s names no file in model.init, want the path of the "
                                "file to write behind %s\n" % (self.job, self.model))
        code, out, error = self.imported(self.model, *self.maps, "--set", "model.init=start.safetensors")
        self.assertEqual((code, error), (0, ""))
        self.assertNotIn("--set", out)
        self.assertEqual(len(safetensors_reader.load(self.path("start.safetensors"))[0]), 5)

    def test_all_that_does_not_fit_is_told_at_once_and_nothing_is_written(self):
        tensors = self.tensors()
        tensors["fc2.weight"] = numbers(4, 2)
        del tensors["fc1.weight"]
        tensors["head"] = numbers(9)
        save(self.model, tensors)
        code, out, error = self.imported(self.model, self.out, *self.maps[2:])
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(error.splitlines(), [
            "tessera: import: \"%s\" is no model of the layers of %s:" % (self.model, self.job),
            "  tensor \"fc2.weight\" is [4, 2], want [2, 4] as \"layers.3.weight\"",
            "  tensor \"layers.0.weight\" is missing, want [4, 3]",
            "  tensor \"head\" [9] is no parameter of the job's layers"])
        self.assertFalse(os.path.exists(self.out))

    def test_what_the_shapes_suggest_can_be_given(self):
        save(self.model, self.tensors())
        code, _, error = self.imported(self.model, self.out)
        self.assertEqual(code, 2)
        suggested = error.splitlines()[-1].partition("it would be ")[2].split()
        self.assertEqual(self.imported(self.model, self.out, "--quiet", *suggested), (0, "", ""))

    def test_broken_and_missing_models_are_told_and_leave_what_there_is(self):
        save(self.model, self.tensors())
        with open(self.out, "w") as file:
            file.write("an older one")
        os.truncate(self.model, os.path.getsize(self.model) - 1)
        code, _, error = self.imported(self.model, self.out, *self.maps)
        self.assertEqual(code, 1)
        self.assertIn(self.model, error)
        tensors = self.tensors()
        tensors["fc2.bias"][1] = numpy.nan
        save(self.model, tensors)
        code, _, error = self.imported(self.model, self.out, *self.maps)
        self.assertEqual(code, 1)
        self.assertIn("tensor \"fc2.bias\": value 1 is nan, want numbers that are finite", error)
        code, _, error = self.imported(self.path("none"), self.out)
        self.assertEqual(code, 2)
        self.assertIn("No such file or directory", error)
        code, _, error = self.imported(self.directory, self.out)
        self.assertEqual(code, 2)
        self.assertIn("is no checkpoint, and has none", error)
        with open(self.out) as file:
            self.assertEqual(file.read(), "an older one")

    def test_a_disk_that_fills_up_leaves_no_file_behind(self):
        save(self.model, self.tensors())
        failing = dict(os.environ, TESSERA_FAILPOINTS="file.write@2=enospc")
        done = subprocess.run([TESSERA, "import", self.model, self.out, "--layers", self.job, *self.maps], env=failing,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.splitlines()[-1],
                         "tessera: import: \"%s\" cannot be written: No space left on device" % self.out)
        self.assertEqual(sorted(os.listdir(self.directory)), ["job.yaml", "model.safetensors"])

    def test_what_is_read_is_not_written_over(self):
        save(self.model, self.tensors())
        with open(self.model, "rb") as file:
            before = file.read()
        code, _, error = self.imported(self.model, self.model, *self.maps)
        self.assertEqual(code, 2)
        self.assertIn("tessera: OUT: \"%s\" would be written over " % self.model, error)
        with open(self.model, "rb") as file:
            self.assertEqual(file.read(), before)

    def test_wrong_questions_are_refused(self):
        save(self.model, self.tensors())
        code, _, error = self.imported(self.model, self.out, "--map", "fc1")
        self.assertEqual((code, error), (2, "tessera: --map: got \"fc1\", want MODULE=LAYER, such as fc1=layers.0; "
                                            "`tessera check` prints the layers\n"))
        code, _, error = self.imported(self.model, self.out, "--set", "model.layers=[linear: {unit: 3}]")
        self.assertEqual(code, 2)
        self.assertIn("unknown key", error)
        own = self.path("own.yaml")
        with open(own, "w") as file:
            file.write("name: own\nmodel: {tensors: model.safetensors}\ntrain: {steps: 3, optimizer: {sgd: "
                       "{learning_rate: 0.1}}}\nmethod: data_parallel\ncluster: {servers: 1, workers: 1}\n")
        float_only = self.tensors()
        del float_only["bn.num_batches_tracked"]
        save(self.model, float_only)
        done = subprocess.run([TESSERA, "import", self.model, self.out, "--layers", own], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("import: model.tensors: a job of tensors has no layers", done.stderr)
        self.assertIn("it need not be imported", done.stderr)


if __name__ == "__main__":
    unittest.main()
