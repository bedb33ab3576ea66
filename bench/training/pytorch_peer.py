#!/usr/bin/python3
"""The peer of bench/training: PyTorch over gloo, the same network, data, order of work and batch sizes.

    pytorch_peer.py FOLDER --method data_parallel|local_sgd --epochs N

FOLDER holds the speech data (deploy/fetch_data.sh --from DIR speech). Two processes of one thread each. Prints one JSON
object like a Tessera report's history: training seconds without evaluation, and accuracy under calibrated batch-norm
constants. Needs Debian's python3-torch.
"""
import argparse
import gzip
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORKERS, BATCH, RATE, WIDTH, CLASSES = 2, 128, 0.01, 2048, 40
MEAN, STDDEV, LOCAL_STEPS, CALIBRATION_ROWS = 0.502, 0.251, 20, 2048


def read_idx(path):
    with gzip.open(path, "rb") as file:
        data = file.read()
    dimensions = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(folder, part):
    x = read_idx(os.path.join(folder, part + "-logmel-idx3-ubyte.gz"))
    y = read_idx(os.path.join(folder, part + "-labels-idx1-ubyte.gz"))
    x = (x.reshape(len(x), -1).astype(np.float32) / 255 - MEAN) / STDDEV
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))


def network(hidden=WIDTH):
    norm = lambda width, affine: torch.nn.BatchNorm1d(width, affine=affine, track_running_stats=False)
    return torch.nn.Sequential(
        torch.nn.Linear(4096, hidden, bias=False), norm(hidden, True), torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden, bias=False), norm(hidden, True), torch.nn.ReLU(),
        torch.nn.Linear(hidden, CLASSES, bias=False), norm(CLASSES, False))


def accuracy(model, train_x, test_x, test_y):
    """Constants from one pass over the calibration rows, then the test rows under them."""
    with torch.no_grad():
        a, b = train_x[:CALIBRATION_ROWS], test_x
        for layer in model:
            if isinstance(layer, torch.nn.BatchNorm1d):
                mean, variance = a.mean(0), a.var(0, unbiased=False)
                apply = lambda v: torch.nn.functional.batch_norm(v, mean, variance, layer.weight, layer.bias)
                a, b = apply(a), apply(b)
            else:
                a, b = layer(a), layer(b)
        return (b.argmax(1) == test_y).float().mean().item()


def work(rank, arguments, port):
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=WORKERS)
    train_x, train_y = load(arguments.folder, "train")
    test_x, test_y = load(arguments.folder, "test")
    model = network()
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    parameters = list(model.parameters())
    steps = len(train_x) // (WORKERS * BATCH)
    seconds, exchange_seconds, step, history = 0.0, 0.0, 0, []

    def average(tensors):
        flat = torch._utils._flatten_dense_tensors(tensors)
        dist.all_reduce(flat)
        flat /= WORKERS
        for tensor, value in zip(tensors, torch._utils._unflatten_dense_tensors(flat, tensors)):
            tensor.copy_(value)

    for epoch in range(arguments.epochs):
        order = torch.randperm(len(train_x), generator=torch.Generator().manual_seed(arguments.seed + epoch))
        dist.barrier()
        begin = time.monotonic()
        for t in range(steps):
            rows = order[(t * WORKERS + rank) * BATCH:(t * WORKERS + rank + 1) * BATCH]
            optimizer.zero_grad(set_to_none=False)
            loss_of(model(train_x[rows]), train_y[rows]).backward()
            step += 1
            start = time.monotonic()
            with torch.no_grad():
                if arguments.method == "data_parallel":
                    average([p.grad for p in parameters])
            exchange_seconds += time.monotonic() - start
            optimizer.step()
            start = time.monotonic()
            with torch.no_grad():
                if arguments.method == "local_sgd" and step % LOCAL_STEPS == 0:
                    average([p.data for p in parameters])
            exchange_seconds += time.monotonic() - start
        dist.barrier()
        seconds += time.monotonic() - begin
        if rank == 0 and (arguments.evaluate or epoch + 1 == arguments.epochs):
            history.append({"seconds": seconds, "epoch": epoch + 1,
                            "test_accuracy": accuracy(model, train_x, test_x, test_y)})
    if rank == 0:
        print(json.dumps({"peer": "pytorch " + torch.__version__, "method": arguments.method,
                          "train_seconds": seconds, "seconds_per_epoch": seconds / arguments.epochs,
                          "exchange_seconds_per_epoch": exchange_seconds / arguments.epochs, "history": history}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--method", choices=["data_parallel", "local_sgd"], default="data_parallel")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument("--evaluate", action="store_true", help="after every epoch, not only the last")
    arguments = parser.parse_args()
    mp.spawn(work, (arguments, arguments.port), nprocs=WORKERS)


if __name__ == "__main__":
    main()
