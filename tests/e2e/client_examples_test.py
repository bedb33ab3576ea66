"""The client library's examples in C and in C++ train what tessera-worker trains, and nothing else is exported."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from cluster import DIGITS, JOBS, ROOT, Cluster, Process, Test, digits, read_tensors, tessera, write_job

CLIENT = os.path.join(ROOT, "worker/client")
EXAMPLES = os.path.join(ROOT, "deploy/examples")
TORCH = "/usr/include/torch/csrc/api/include"
# Sums in another order; the largest weights are about 1.
ROUNDING = 2e-4


def floats(path):
    import array
    tensors = read_tensors(path)
    return {name: (shape, array.array("f", data)) for name, (shape, data) in tensors.items()
            if name.startswith("layers.") and name.rsplit(".", 1)[1] in ("weight", "bias")}


class Examples(Test):
    def install(self):
        """The library where a package would put it."""
        folder = self.path("client")
        if os.path.isdir(folder):
            return folder
        os.mkdir(folder)
        shutil.copy(os.path.join(CLIENT, "libtessera_client.so"), os.path.join(folder, "libtessera_client.so.1"))
        os.symlink("libtessera_client.so.1", os.path.join(folder, "libtessera_client.so"))
        for name in ("tessera_client.h", "tessera_client.hpp", "tessera_client.pc"):
            shutil.copy(os.path.join(CLIENT, name), folder)
        return folder

    def build(self, compiler, source, *flags):
        program = self.path(source.split(".")[0])
        found = subprocess.run(["pkg-config", "--cflags", "--libs", "tessera_client"], check=True, text=True,
                               env=dict(os.environ, PKG_CONFIG_PATH=self.install()), stdout=subprocess.PIPE).stdout
        done = subprocess.run([*compiler, os.path.join(EXAMPLES, source), *found.split(), *flags, "-lz", "-o", program],
                              text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
        return program

    def train(self, job, command):
        """The parameters that servers end with, and the report."""
        job["checkpoint"] = {"directory": self.path("checkpoints-%d" % len(os.listdir(self.folder)))}
        cluster = Cluster(self, job, start=False)
        for rank in range(job["cluster"]["servers"]):
            cluster.start_server(rank)
        if command is None:
            for rank in range(job["cluster"]["workers"]):
                cluster.start_worker(rank)
        else:
            programs = [Process(self, "program %d" % rank, [*command, cluster.path, DIGITS, cluster.coordinator])
                        for rank in range(job["cluster"]["workers"])]
            for program in programs:
                program.expect_exit(0, within=60)
        report = cluster.finish()
        exported = self.path("exported-%d.safetensors" % len(os.listdir(self.folder)))
        newest = max(os.listdir(job["checkpoint"]["directory"]))
        code, _, error = tessera("export", os.path.join(job["checkpoint"]["directory"], newest), exported)
        self.assertEqual(code, 0, error)
        return floats(exported), report

    def check_same(self, job, command):
        ours, our_report = self.train(dict(job), None)
        theirs, report = self.train(dict(job), command)
        self.assertEqual(ours.keys(), theirs.keys())
        for name, (shape, values) in ours.items():
            self.assertEqual(theirs[name][0], shape)
            most = max(abs(a - b) for a, b in zip(values, theirs[name][1]))
            self.assertLess(most, ROUNDING, name)
        self.assertEqual(report["steps"], our_report["steps"])
        self.assertEqual(report["examples"], our_report["examples"])
        self.assertAlmostEqual(report["final"]["test_loss"], our_report["final"]["test_loss"], delta=1e-3)
        return report

    def test_the_c_example_is_a_whole_worker(self):
        program = self.build(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"], "digits.c", "-lm")
        with open(os.path.join(JOBS, "digits_linear.yaml")) as file:
            text = file.read()
        self.assertIn("linear: {units: 10}", text)
        job = digits(servers=2, workers=2, norm=False, batch=32, rate=0.5, epochs=8,
                     normalize={"mean": 0.0, "stddev": 0.0627451})
        job["model"]["layers"] = [{"linear": {"units": 10}}]
        report = self.check_same(job, [program])
        self.assertGreater(report["final"]["test_accuracy"], 0.85)
        self.assertEqual(report["build"]["backend"], "C")
        # It tells its accuracy and no more: what is not known is not 0.
        self.assertEqual(report["final"]["precision_at"], {"1": None, "3": None, "5": None})

    @unittest.skipUnless(os.path.isdir(TORCH), "libtorch-dev is not installed")
    def test_a_network_of_libtorch_is_a_whole_worker(self):
        program = self.build(["c++", "-std=c++17", "-O1", "-I" + TORCH], "digits_torch.cc", "-ltorch", "-ltorch_cpu",
                             "-lc10")
        with open(os.path.join(EXAMPLES, "digits_torch.cc")) as file:
            self.assertLessEqual(len(file.readlines()), 80)
        for method in ({"data_parallel": {}}, {"local_sgd": {"local_steps": 4}}, {"diloco": {"local_steps": 4}}):
            with self.case(str(method)):
                self.check_same(digits(servers=1, workers=2, norm=False, method=method, epochs=3), [program])


class Library(Test):
    def test_it_exports_its_functions_alone(self):
        listed = subprocess.run(["nm", "-D", "--defined-only", os.path.join(CLIENT, "libtessera_client.so")],
                                check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
        exported = sorted(line.split()[2] for line in listed if line.split()[1].isupper())
        with open(os.path.join(CLIENT, "tessera_client.abi")) as file:
            self.assertEqual(exported, file.read().split(),
                             "a function is added by its name in tessera_client.abi, and none is taken away")

    def test_pkg_config_has_the_programs_version(self):
        with open(os.path.join(CLIENT, "tessera_client.pc")) as file:
            self.assertIn("Version: %s\n" % tessera("--version")[1].split()[-1], file.read())


if __name__ == "__main__":
    unittest.main()
