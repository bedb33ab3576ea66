#!/usr/bin/python3
"""Trains the small GPT of deploy/jobs/shakespeare_gpt.yaml, alone against PyTorch, or by several methods.

    bench/training/text.py FOLDER [--seeds 3] [--steps 2000] [--skip-peer]
    bench/training/text.py FOLDER --methods [--workers 4] [--seeds 1] [--steps 2000]

FOLDER holds the text (deploy/fetch_data.sh shakespeare). The first form trains in turn with Tessera and with PyTorch,
one worker of one thread each, and prints losses on the test text and seconds of training. The second form prints losses
and bytes for each worker of data_parallel, local_sgd, diloco in its forms and ist. The peer needs Debian's
python3-torch and libopenblas0-pthread.
"""
import argparse
import json
import os
import subprocess
import tempfile

import yaml

import peer
from runs import ROOT

JOB = os.path.join(ROOT, "deploy/jobs/shakespeare_gpt.yaml")
METHODS = {
    "data_parallel": {"data_parallel": {}},
    "local_sgd, 20 steps": {"local_sgd": {"local_steps": 20}},
    "diloco, 50 steps": {"diloco": {"local_steps": 50}},
    "diloco, 50 steps, asynchronous": {"diloco": {"local_steps": 50, "asynchronous": True}},
    "ist, 20 steps, random": {"ist": {"local_steps": 20, "cut": "all"}},
    "ist, 20 steps, rolling": {"ist": {"local_steps": 20, "cut": "all", "order": "rolling"}},
}


def tessera(binary, folder, settings):
    report = os.path.join(tempfile.mkdtemp(), "report.json")
    command = [binary, "run", JOB, "--quiet", "--report", report, "--set", "data.directory=" + os.path.abspath(folder)]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True)
    with open(report) as file:
        return json.load(file)


def pytorch(folder, seed, steps):
    with open(JOB) as file, tempfile.NamedTemporaryFile("w", suffix=".json") as job:
        json.dump(yaml.safe_load(file), job)
        job.flush()
        script = os.path.join(ROOT, "bench/training/pytorch_text_peer.py")
        done = peer.run([script, job.name, folder, "--seed", str(seed), "--steps", str(steps)], check=True)
    return json.loads(done.stdout.splitlines()[-1])


def mean(values):
    return sum(values) / len(values)


def alone(arguments):
    ours, theirs = [], []
    for seed in range(1, arguments.seeds + 1):
        report = tessera(arguments.binary, arguments.folder,
                         ["seed=%d" % seed, "train.steps=%d" % arguments.steps, "train.evaluate_every=0"])
        ours.append((report["final"]["test_loss"], report["train_seconds"]))
        text = "seed %d   tessera loss %.4f in %.1f s" % ((seed,) + ours[-1])
        if not arguments.skip_peer:
            found = pytorch(arguments.folder, seed, arguments.steps)
            theirs.append((found["test_loss"], found["seconds"]))
            text += "   pytorch loss %.4f in %.1f s   time ratio %.2f" % (theirs[-1] + (ours[-1][1] / theirs[-1][1],))
        print(text, flush=True)
    text = "mean     tessera loss %.4f" % mean([loss for loss, _ in ours])
    if theirs:
        text += "   pytorch loss %.4f   time ratio %.2f" % (
            mean([loss for loss, _ in theirs]), mean([a[1] for a in ours]) / mean([b[1] for b in theirs]))
    print(text)


def methods(arguments):
    workers = arguments.workers
    for name, method in METHODS.items():
        found = []
        for seed in range(1, arguments.seeds + 1):
            report = tessera(arguments.binary, arguments.folder, [
                "seed=%d" % seed, "train.steps=%d" % arguments.steps, "train.evaluate_every=0",
                "method=" + json.dumps(method), "cluster.workers=%d" % workers, "cluster.servers=2",
                "train.schedule={warmup: %d, decay: {cosine: {examples: %d, floor: 0.1}}}" % (
                    1200 * workers, 12 * workers * arguments.steps)])
            traffic = report["traffic"]
            found.append((report["final"]["test_loss"],
                          (traffic["push_payload_bytes"] + traffic["pull_payload_bytes"]) / workers / 1e6,
                          report["train_seconds"]))
        loss, megabytes, seconds = (mean(values) for values in zip(*found))
        print("%-34s loss %.4f   %9.1f MB each worker   %.0f s" % (name, loss, megabytes, seconds), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--methods", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--skip-peer", action="store_true")
    parser.add_argument("--binary", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    arguments = parser.parse_args()
    arguments.seeds = arguments.seeds or (1 if arguments.methods else 3)
    if arguments.methods:
        return methods(arguments)
    if not arguments.skip_peer:
        print(peer.check("text.py", "--skip-peer"), flush=True)
    return alone(arguments)


if __name__ == "__main__":
    main()
