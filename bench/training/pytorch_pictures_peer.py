#!/usr/bin/python3
"""The peer of bench/training/pictures.py: PyTorch with network, data, augmentation and optimizer of a CIFAR job file.

    pytorch_pictures_peer.py JOB FOLDER --seed N [--workers K] [--epochs N] [--device cuda] [--precision tf32]

JOB is the job file as JSON, FOLDER holds its data. As data-parallel workers do it, each of K takes train.batch_size
rows of every step, normalises them with statistics of its own, and the mean of the gradients is applied once. One
thread. Prints one JSON object: seconds of training without evaluation, and the accuracy on the test images with
running statistics. Needs Debian's python3-torch, on a GPU a PyTorch for it.
"""
import argparse
import gzip
import json
import math
import os
import sys
import time

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/examples"))
from pytorch_model import module_of  # noqa: E402

PADDING = 4


def images(folder, name, normalize, device):
    """[rows, 3, 32, 32] normalised, and the labels."""
    with gzip.open(os.path.join(folder, name), "rb") as file:
        records = np.frombuffer(file.read(), np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    x = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()).to(device).float() / 255
    mean, stddev = (torch.tensor(normalize[key], device=device).view(1, 3, 1, 1) for key in ("mean", "stddev"))
    return (x - mean) / stddev, torch.from_numpy(records[:, 0].astype(np.int64)).to(device)


def augmented(x):
    """Flipped with probability 1/2, and a crop of the image with a border of zeros, each at random."""
    rows = torch.arange(len(x), device=x.device)
    x = torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
    padded = torch.nn.functional.pad(x, (PADDING,) * 4)
    top, left = torch.randint(2 * PADDING + 1, (2, len(x), 1), device=x.device)
    span = torch.arange(x.shape[2], device=x.device)
    return padded[rows.view(-1, 1, 1, 1), torch.arange(3, device=x.device).view(1, 3, 1, 1),
                  (top + span).view(len(x), 1, -1, 1), (left + span).view(len(x), 1, 1, -1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job")
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="f32", choices=["f32", "tf32"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    with open(arguments.job) as file:
        job = json.load(file)
    data, keys = job["data"], job["train"]
    x, y = images(arguments.folder, data["train"]["features"], data["normalize"], arguments.device)
    test_x, test_y = images(arguments.folder, data["test"]["features"], data["normalize"], arguments.device)
    net = module_of(job["model"]).to(arguments.device)
    sgd = keys["optimizer"]["sgd"]
    optimizer = torch.optim.SGD(net.parameters(), lr=sgd["learning_rate"], momentum=sgd["momentum"],
                                weight_decay=sgd["weight_decay"])
    examples = keys["schedule"]["decay"]["cosine"]["examples"]
    batch, workers = keys["batch_size"], arguments.workers
    epochs = arguments.epochs or keys["epochs"]

    def now():
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()

    done, begin = 0, now()
    for _ in range(epochs):
        order = torch.randperm(len(x)).to(arguments.device)
        for at in range(0, len(x) - batch * workers + 1, batch * workers):
            for group in optimizer.param_groups:
                group["lr"] = sgd["learning_rate"] * 0.5 * (1 + math.cos(math.pi * min(1.0, done / examples)))
            optimizer.zero_grad(set_to_none=True)
            for k in range(workers):
                rows = order[at + k * batch:at + (k + 1) * batch]
                loss = torch.nn.functional.cross_entropy(net(augmented(x[rows])), y[rows])
                (loss / workers).backward()
            optimizer.step()
            done += batch * workers
    seconds = now() - begin
    net.eval()
    with torch.no_grad():
        right = sum(int((net(test_x[i:i + 250]).argmax(1) == test_y[i:i + 250]).sum())
                    for i in range(0, len(test_x), 250))
    print(json.dumps({"seconds": seconds, "test_accuracy": right / len(test_x)}))


if __name__ == "__main__":
    main()
