#!/usr/bin/env python3
"""An exchange by the Python package against the same calls of the client library made bare.

  bench/python_client/exchange.py [--sizes 16777216 268435456] [--seconds 5] [--tiny]

Per size: for each candidate one server and one worker, all workers in this process, which take turns. A worker says
that a minibatch is done, pushes gradients and pulls values. "bare" has its pointers ready and makes the two calls of C
that this is; NumPy is tessera.Trainer, PyTorch tessera.torch.attach. Medians, and shares of the bare calls' rate. The
last row has 16 MiB in 1,024 tensors, as a transformer's parameters are. Values are compared before times are told.
"""
import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "worker/python"))

import numpy as np  # noqa: E402
import tessera  # noqa: E402
from tessera.trainer import arrays_of  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

INPUTS = 64


def write_job(path, size, tensors):
    """A job whose parameters are so many bytes in so many tensors."""
    layers = ("[{linear: {units: %d, bias: false}}]" % (size // 4 // INPUTS) if tensors == 1 else
              "[{repeat: {times: %d, layers: [{linear: {units: %d, bias: false}}]}}]" % (tensors, INPUTS))
    with open(path, "w") as file:
        file.write("name: bench\nseed: 1\ndata:\n  format: idx\n  directory: %s\n"
                   "  train: {features: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz}\n"
                   "  test: {features: test-images-idx3-ubyte.gz, labels: test-labels-idx1-ubyte.gz}\n"
                   "model: {input: [%d], layers: %s}\n"
                   "train: {batch_size: 8, steps: 1000000000, optimizer: {sgd: {learning_rate: 0.1}}}\n"
                   "method: {data_parallel: {}}\ncluster: {servers: 1, workers: 1, threads: 1}\n"
                   % (os.path.join(ROOT, "deploy/data/optdigits"), INPUTS, layers))


class Candidate:
    """A server and its worker."""

    def __init__(self, folder, program, job_file):
        address = os.path.join(folder, "%s.address" % type(self).__name__)
        if os.path.exists(address):
            os.remove(address)
        self.server = subprocess.Popen([program, "--job", job_file, "--rank", "0", "--listen", "127.0.0.1:0",
                                        "--address-file", address, "--log-level", "error"])
        while not os.path.exists(address):
            if self.server.poll() is not None:
                raise SystemExit("exchange.py: %s has ended" % program)
            time.sleep(0.01)
        with open(address) as file:
            self.job = tessera.join(job_file, coordinator=file.read().split()[0])
        self.seconds = []
        self.begin()

    def turn(self):
        start = time.perf_counter()
        self.exchange()
        self.seconds.append(time.perf_counter() - start)

    def end(self):
        self.job.close()
        self.server.kill()
        self.server.wait()


class Bare(Candidate):
    def begin(self):
        self.values = [tensor.empty() for tensor in self.job.tensors]
        self.gradients = [np.full(value.shape, 0.25, np.float32) for value in self.values]
        self.job.pull(self.values)
        pointers = ctypes.c_void_p * len(self.values)
        self.to = pointers(*[value.ctypes.data for value in self.values])
        self.of = pointers(*[value.ctypes.data for value in self.gradients])
        self.verdict = (ctypes.c_int * 1)()

    def exchange(self):
        library, handle, count = self.job._library, self.job._handle, len(self.values)
        status = library.tessera_step(handle, 8, 1.0, self.verdict)
        status = status or library.tessera_exchange(handle, self.of, count, self.to, count, self.verdict)
        # The library's timeout is short, for Python's signals.
        while status == tessera.Status.DEADLINE_EXCEEDED:
            status = library.tessera_wait(handle, self.verdict)
        assert status == 0, tessera.library.last_message()


class NumPy(Candidate):
    def begin(self):
        arrays = arrays_of(self.job)
        self.values = list(arrays.values())
        self.trainer = tessera.Trainer(self.job, arrays,
                                       [np.full(value.shape, 0.25, np.float32) for value in self.values])

    def exchange(self):
        self.trainer.step(8, 1.0)


class PyTorch(Candidate):
    def begin(self):
        self.model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(tensor.shape))
                                             for tensor in self.job.tensors])
        for parameter in self.model:
            parameter.grad = torch.full_like(parameter, 0.25)
        self.trainer = tessera.torch.attach(self.job, self.model)
        self.values = [parameter.detach().numpy() for parameter in self.model]

    def exchange(self):
        self.trainer.step(8, 1.0)


def measure(folder, flags, size, tensors):
    job_file = os.path.join(folder, "job.yaml")
    write_job(job_file, size, tensors)
    candidates = [kind(folder, flags.server, job_file) for kind in (Bare, NumPy) + ((PyTorch,) if torch else ())]
    try:
        end = time.monotonic() + flags.seconds
        while time.monotonic() < end or len(candidates[0].seconds) < 5:
            for candidate in candidates:
                candidate.turn()
        for candidate in candidates[1:]:
            for got, want in zip(candidate.values, candidates[0].values):
                np.testing.assert_array_equal(got, want)
        bare = statistics.median(candidates[0].seconds)
        medians = {type(candidate).__name__: statistics.median(candidate.seconds) for candidate in candidates[1:]}
        said = ["%s %.3f GB/s (%.2f of it)" % (name, 2 * size / median / 1e9, bare / median)
                for name, median in medians.items()]
        print("%9.1f MiB in %4d: bare %.3f GB/s, %s"
              % (size / 2 ** 20, tensors, 2 * size / bare / 1e9, ", ".join(said)))
    finally:
        for candidate in candidates:
            candidate.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[16 << 20, 256 << 20], help="bytes")
    parser.add_argument("--seconds", type=float, default=5, help="for each row")
    parser.add_argument("--tiny", action="store_true", help="runs all of it in a moment")
    parser.add_argument("--server", default=os.path.join(ROOT, "bazel-bin/server/tessera-server"))
    flags = parser.parse_args()
    if flags.tiny:
        flags.sizes, flags.seconds = [65536], 0
    with tempfile.TemporaryDirectory() as folder:
        for size in flags.sizes:
            measure(folder, flags, size, 1)
        tensors = 16 if flags.tiny else 1024
        measure(folder, flags, 4 * INPUTS * INPUTS * tensors, tensors)
    return 0


if __name__ == "__main__":
    sys.exit(main())
