"""An example: handwritten digits in PyTorch. python3 -m tessera.example_digits_torch [JOB.yaml]

The same network and rows as tessera.example_digits, by tessera.torch. Where the method pushes changes, SGD or AdamW
steps here.
"""
import sys

import torch

import tessera
import tessera.torch
from tessera.digits_network import read_digits
from tessera.example_digits import arguments_of, data_folder


def model_of(job: tessera.Job) -> torch.nn.Module:
    """Linear, relu, linear, of the job's sizes."""
    units = job.parameters[0].shape[0]
    return torch.nn.Sequential(torch.nn.Linear(64, units), torch.nn.ReLU(), torch.nn.Linear(units, 10))


def evaluate(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    with torch.no_grad():
        y = model(x)
        return {"score": float((y.argmax(1) == labels).float().mean()),
                "loss": float(torch.nn.functional.cross_entropy(y, labels)), "rows": len(x)}


def main() -> int:
    parser = arguments_of("example_digits_torch")
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    x, labels = map(torch.from_numpy, read_digits(data_folder(arguments), "train"))
    test = tuple(map(torch.from_numpy, read_digits(data_folder(arguments), "test")))
    job = tessera.join(arguments.job, arguments.rank, arguments.coordinator)
    tessera.leave_on_signals(job)
    # As workers do: each scores the rows i of which i mod workers is its rank, and the scores add up.
    test = tuple(tensor[job.rank % job.workers::job.workers] for tensor in test)
    model, optimizer = model_of(job), None
    if not job.pushes_gradient and arguments.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), arguments.learning_rate, arguments.momentum)
    elif not job.pushes_gradient:
        optimizer = torch.optim.AdamW(model.parameters(), arguments.learning_rate)
    scores = {}
    with tessera.torch.attach(job, model, optimizer) as trainer:
        while trainer.running:
            if trainer.evaluates:
                scores = evaluate(model, *test)
                trainer.report(**scores)
                continue
            rows = trainer.minibatch.rows
            rows = torch.randint(len(x), (32,)) if rows is None else torch.from_numpy(rows.astype("int64"))
            model.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x[rows]), labels[rows])
            loss.backward()
            trainer.step(examples=len(rows), loss=loss)
        if arguments.save:
            names = [tensor.name for tensor in job.parameters]
            tessera.save_tensors(dict(zip(names, model.parameters())), arguments.save)
    print("digits: test accuracy %.4f" % scores.get("score", float("nan")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
