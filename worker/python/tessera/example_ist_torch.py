"""An example: subnets of handwritten digits in PyTorch. python3 -m tessera.example_ist_torch --init init.safetensors

Each round gives this worker some of the hidden units of both layers, and a network as small as that is built of them;
its parameters lie in the round's arrays. The job's file has, beside `model.tensors`,

    groups:
      first: [[0.weight, 0], [1.weight, 0], [1.bias, 0], [3.weight, 1]]
      second: [[3.weight, 0], [4.weight, 0], [4.bias, 0], [6.weight, 1]]

The norms take the statistics of what they read, in evaluations as well, so that sums over more units need no rescaling.
"""
import argparse
import sys

import torch

import tessera
from tessera.digits_network import read_digits


def network_of(first: int, second: int) -> torch.nn.Sequential:
    """The network with so many units in its hidden layers."""
    def norm(units: int) -> torch.nn.Module:
        return torch.nn.BatchNorm1d(units, track_running_stats=False)

    return torch.nn.Sequential(torch.nn.Linear(64, first, bias=False), norm(first), torch.nn.ReLU(),
                               torch.nn.Linear(first, second, bias=False), norm(second), torch.nn.ReLU(),
                               torch.nn.Linear(second, 10))


def over(arrays: dict) -> torch.nn.Sequential:
    """The network whose parameters are these arrays: what trains it writes into them."""
    network = network_of(*arrays["3.weight"].shape[::-1])
    for name, parameter in network.named_parameters():
        parameter.data = torch.from_numpy(arrays[name])
    return network


def evaluate(network: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    with torch.no_grad():
        y = network(x)
        return {"score": float((y.argmax(1) == labels).float().mean()),
                "loss": float(torch.nn.functional.cross_entropy(y, labels)), "rows": len(x)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tessera.example_ist_torch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init", metavar="FILE", help="write the file that the job's model.tensors names, and end")
    parser.add_argument("--units", type=int, nargs=2, default=(128, 64), help="of the hidden layers, for --init")
    parser.add_argument("--data", help="folder of the digits, deploy/data/optdigits; not for --init")
    parser.add_argument("--job", help="the job file; else TESSERA_JOB")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.init:
        torch.manual_seed(1)
        tessera.save_tensors(network_of(*arguments.units).state_dict(), arguments.init)
        return 0
    if not arguments.data:
        parser.error("--data is missing, want the folder of the digits")
    x, labels = map(torch.from_numpy, read_digits(arguments.data, "train"))
    test = tuple(map(torch.from_numpy, read_digits(arguments.data, "test")))
    job = tessera.join(arguments.job)
    test = tuple(tensor[job.rank % job.workers::job.workers] for tensor in test)
    network = optimizer = None

    def begin(arrays: dict, units: dict, now: tessera.Round) -> None:
        """A round begins: the network of its units, and an optimizer without a past."""
        nonlocal network, optimizer
        network = over(arrays)
        optimizer = torch.optim.SGD(network.parameters(), arguments.learning_rate, momentum=0.5)

    scores = {}
    with tessera.SubnetTrainer(job, begin) as trainer:
        while trainer.running:
            if trainer.evaluates:
                scores = evaluate(over(trainer.whole), *test)
                trainer.report(**scores)
                continue
            rows = torch.randint(len(x), (32,))
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(x[rows]), labels[rows])
            loss.backward()
            optimizer.step()
            trainer.step(examples=len(rows), loss=float(loss))
    print("digits: test accuracy %.4f" % scores.get("score", float("nan")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
