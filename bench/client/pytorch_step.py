#!/usr/bin/python3
"""A PyTorch program's step through the client library against PyTorch's own DDP over gloo.

    bench/client/pytorch_step.py [--units 4096] [--steps 40] [--rounds 3] [--tiny]

One linear layer of units x units (67 MB at 4096), 8 rows, two workers of one thread, data_parallel over two servers;
DDP with the same network, rows and threads; in turns, medians over all steps but the first tenth. Needs Debian's
python3-torch, and what bazel builds: //deploy/cli:tessera, //server:tessera-server and
//worker/client:libtessera_client.so.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Memory that was freed is used again, by both: PyTorch allocates a gradient in each step, and where that is given back
# to the system in between, as by default, faults for its pages can take longer than all the rest of the step.
ENVIRONMENT = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "worker/python"), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1",
                   MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(1 << 40), MALLOC_TOP_PAD_=str(1 << 28))


def median(values):
    return sorted(values)[len(values) // 2]


def steps_of(seconds):
    return seconds[len(seconds) // 10 + 1:]


def network(units):
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(units, units, bias=False)
    return torch, model, torch.randn(8, units), torch.randn(8, units)


def joined(units, out):
    """One worker of ours: seconds of each step."""
    import tessera
    torch, model, x, y = network(units)
    trainer = tessera.torch.attach(tessera.join(), model)
    seconds, begin = [], time.monotonic()
    while trainer.running:
        model.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        going_on = trainer.step(examples=8, loss=loss)
        now = time.monotonic()
        seconds.append(now - begin)
        begin = now
        if not going_on:
            break
        if trainer.evaluates:
            trainer.report(score=0, loss=0, rows=1)
    trainer.close()
    with open("%s.%s" % (out, os.environ["TESSERA_RANK"]), "w") as file:
        json.dump(seconds, file)


def ddp(units, steps, rank, out):
    """One process of the peer: the same loop with DistributedDataParallel."""
    torch, model, x, y = network(units)
    import torch.distributed
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", GLOO_SOCKET_IFNAME="lo")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    replica = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.01)
    seconds, begin = [], time.monotonic()
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(replica(x), y).backward()
        optimizer.step()
        now = time.monotonic()
        seconds.append(now - begin)
        begin = now
    if rank == 0:
        with open(out, "w") as file:
            json.dump(seconds, file)


def run(folder, units, steps, command):
    sys.path.insert(0, os.path.join(ROOT, "worker/python"))
    import numpy
    import tessera
    tessera.save_tensors({"weight": numpy.zeros((units, units), numpy.float32)},
                         os.path.join(folder, "step.safetensors"))
    job = os.path.join(folder, "step.yaml")
    with open(job, "w") as file:
        file.write("name: step\nmodel: {tensors: step.safetensors}\n"
                   "train: {steps: %d, evaluate_every: 0, optimizer: {sgd: {learning_rate: 0.01}}}\n"
                   "method: {data_parallel: {}}\ncluster: {servers: 2, workers: 2}\n" % steps)
    subprocess.run([os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"), "run", job, "--quiet", "--worker", command],
                   check=True, env=ENVIRONMENT)


def step_rates(units, steps, rounds):
    ours, theirs = [], []
    me = "%s %s" % (sys.executable, os.path.abspath(__file__))
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            run(folder, units, steps, "%s --as joined --units %d --out %s" % (me, units, out))
            with open(out + ".0") as file:
                ours += steps_of(json.load(file))
            peers = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--as", "ddp", "--units", str(units),
                                       "--steps", str(steps), "--rank", str(rank), "--out", out + ".ddp"],
                                      env=ENVIRONMENT) for rank in range(2)]
            for peer in peers:
                if peer.wait() != 0:
                    sys.exit("pytorch_step: the peer ended with %d" % peer.returncode)
            with open(out + ".ddp") as file:
                theirs += steps_of(json.load(file))
    print("step, %.0f MB, 2 workers: ours %.1f ms, DDP over gloo %.1f ms (%.2f)"
          % (4e-6 * units * units, 1e3 * median(ours), 1e3 * median(theirs), median(ours) / median(theirs)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="small, once")
    parser.add_argument("--as", dest="role", choices=["joined", "ddp"], help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.role == "joined":
        return joined(flags.units, flags.out)
    if flags.role == "ddp":
        return ddp(flags.units, flags.steps, flags.rank, flags.out)
    if flags.tiny:
        flags.units, flags.rounds = 256, 1
    step_rates(flags.units, flags.steps, flags.rounds)
    return None


if __name__ == "__main__":
    main()
