"""An example: handwritten digits in NumPy alone. python3 -m tessera.example_digits [JOB.yaml]

The gradient is written by hand (digits_network.py). The job names the rows of each minibatch, so that this worker sees
what tessera-worker would see in its place, and ends with its parameters but for rounding. Where the method pushes
changes, SGD steps here.

    tessera-server --job worker/python/examples/digits.yaml --rank 0 --listen 127.0.0.1:7000 &
    python3 -m tessera.example_digits worker/python/examples/digits.yaml --coordinator 127.0.0.1:7000
"""
import argparse
import os
import sys

import numpy as np

import tessera
from tessera.digits_network import DigitsNetwork, read_digits
from tessera.trainer import arrays_of


class LocalSgd:
    """PyTorch's SGD with momentum, over the network's arrays."""

    def __init__(self, network: DigitsNetwork, rate: float, momentum: float):
        self.network, self.rate, self.momentum = network, np.float32(rate), np.float32(momentum)
        self.buffers = [np.zeros_like(parameter) for parameter in network.parameters]

    def step(self, scale: float) -> None:
        for w, g, m in zip(self.network.parameters, self.network.gradients, self.buffers):
            m *= self.momentum
            m += g
            w -= self.rate * np.float32(scale) * m

    def save(self) -> bytes:
        return b"".join(buffer.tobytes() for buffer in self.buffers)

    def load(self, state: bytes) -> None:
        begin = 0
        for buffer in self.buffers:
            buffer[:] = np.frombuffer(state, np.float32, buffer.size, begin).reshape(buffer.shape)
            begin += buffer.nbytes


def arguments_of(program: str) -> argparse.ArgumentParser:
    """What the examples of digits have in common."""
    parser = argparse.ArgumentParser(prog="python3 -m tessera." + program)
    parser.add_argument("job", nargs="?", help="the job file; else TESSERA_JOB")
    parser.add_argument("--coordinator", help="host:port of server 0; else TESSERA_COORDINATOR, or as the job has it")
    parser.add_argument("--rank", type=int, help="the place among the workers; else TESSERA_RANK, or any")
    parser.add_argument("--data", help="folder of the digits (../../../deploy/data/optdigits beside the job file)")
    parser.add_argument("--learning-rate", type=float, default=0.2, help="where this worker's optimizer steps")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--save", help="a safetensors file for the parameters at the end")
    return parser


def data_folder(arguments: argparse.Namespace) -> str:
    job = arguments.job or os.environ.get("TESSERA_JOB", "")
    return arguments.data or os.path.join(os.path.dirname(job), "..", "..", "..", "deploy", "data", "optdigits")


def main() -> int:
    arguments = arguments_of("example_digits").parse_args()
    x, labels = read_digits(data_folder(arguments), "train")
    test_x, test_labels = read_digits(data_folder(arguments), "test")
    random = np.random.default_rng(1)
    with tessera.join(arguments.job, arguments.rank, arguments.coordinator) as job:
        tessera.leave_on_signals(job)
        arrays = arrays_of(job)
        network = DigitsNetwork([arrays[tensor.name] for tensor in job.parameters])
        optimizer = None if job.pushes_gradient else LocalSgd(network, arguments.learning_rate, arguments.momentum)
        trainer = tessera.Trainer(job, arrays, network.gradients if job.pushes_gradient else None,
                                  on_save=optimizer.save if optimizer else None,
                                  on_load=optimizer.load if optimizer else None)
        # As workers do: each scores the rows i of which i mod workers is its rank, and the scores add up.
        part = slice(job.rank % job.workers, None, job.workers)
        averaged = [arrays[tensor.name] for tensor in job.tensors if tensor.is_state]
        if averaged and optimizer:
            optimizer.buffers = averaged
        scores = {}
        while trainer.running:
            if trainer.evaluates:
                scores = network.evaluate(test_x[part], test_labels[part], x)
                trainer.report(**scores)
                continue
            minibatch = trainer.minibatch
            rows = random.integers(len(x), size=32) if minibatch.rows is None else minibatch.rows
            loss = network.train(x[rows], labels[rows])
            if optimizer:
                optimizer.step(minibatch.rate)
            trainer.step(examples=len(rows), loss=loss)
        if arguments.save:
            tessera.save_tensors(arrays, arguments.save)
    print("digits: test accuracy %.4f" % scores.get("score", float("nan")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
