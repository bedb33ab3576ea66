"""What the PyTorch examples have in common: their flags, and a loop over minibatches that each draws for itself."""
import argparse
import sys
from typing import Callable

import torch

import tessera
import tessera.torch


def arguments_of(program: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m tessera." + program, description=about)
    parser.add_argument("--init", metavar="FILE", help="write the file that the job's model.tensors names, and end")
    parser.add_argument("--job", help="the job file; else TESSERA_JOB")
    parser.add_argument("--coordinator", help="host:port of server 0; else TESSERA_COORDINATOR")
    parser.add_argument("--rank", type=int, help="the place among the workers; else TESSERA_RANK, or any")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="where this worker's AdamW steps")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda")
    parser.add_argument("--seed", type=int, default=1, help="of initial values; with the rank, of minibatches")
    return parser


def train(arguments: argparse.Namespace, model: torch.nn.Module, draw: Callable[[torch.Generator], tuple],
          loss_of: Callable[[tuple], torch.Tensor], evaluate: Callable[[], dict]) -> int:
    """Trains to the job's end; the program's exit code.

    draw      (inputs, labels) of one minibatch; the length of the inputs is its examples
    loss_of   the mean loss of a minibatch
    evaluate  score, loss and rows of the model as it is
    """
    if arguments.init:
        tessera.torch.save_initial(model, arguments.init)
        return 0
    job = tessera.join(arguments.job, arguments.rank, arguments.coordinator)
    tessera.leave_on_signals(job)
    generator = torch.Generator().manual_seed(arguments.seed + job.rank)
    model.to(arguments.device)
    optimizer = None if job.pushes_gradient else torch.optim.AdamW(model.parameters(), arguments.learning_rate)
    # Where the job goes on from a checkpoint, minibatches go on from where they were.
    trainer = tessera.torch.attach(
        job, model, optimizer, on_save=lambda: bytes(generator.get_state().tolist()),
        on_load=lambda state: generator.set_state(torch.tensor(list(state), dtype=torch.uint8)))
    scores = {}
    with trainer:
        while trainer.running:
            if trainer.evaluates:
                model.eval()
                with torch.no_grad():
                    scores = evaluate()
                model.train()
                trainer.report(**scores)
                continue
            batch = tuple(tensor.to(arguments.device) for tensor in draw(generator))
            model.zero_grad()
            loss = loss_of(batch)
            loss.backward()
            trainer.step(examples=len(batch[0]), loss=loss)
    print(", ".join("%s %.4g" % item for item in scores.items()), file=sys.stdout)
    return 0
