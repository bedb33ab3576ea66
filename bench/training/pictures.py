#!/usr/bin/python3
"""Trains ResNet-18 and VGG-12 on CIFAR-10: against PyTorch, and by several methods.

    bench/training/pictures.py FOLDER [--seeds 3] [--epochs 15] [--workers 2] [--device cuda] [--skip-peer]
                               [--results FILE] [--images N]
    bench/training/pictures.py FOLDER --methods [--seeds 1] [--epochs 15] [--workers 2 4] [--device cuda] [--at-once 4]
    bench/training/pictures.py FOLDER --link 10Gbit --step-time 40ms --workers 2 4 8

FOLDER holds the images (deploy/fetch_data.sh --from DIR cifar10). The first form trains ResNet-18
(deploy/jobs/cifar_resnet18.yaml) in turn with Tessera and with PyTorch, workers of one thread each, and prints
accuracies on the test images and seconds of training. --results FILE keeps what each seed came to, and a seed that is
there is not trained again, so that hours can be spent in parts; --images N takes the first N training images alone, so
that both go in short turns where a machine's speed changes. The second prints accuracies and bytes of both networks
by data_parallel, local_sgd and ist; with --at-once several jobs share the machine, so that their seconds say nothing.
The third has the seconds of an epoch from simulations without mathematics on such links, each machine with a worker and
a server. The peer needs Debian's python3-torch and libopenblas0-pthread.
"""
import argparse
import concurrent.futures
import gzip
import json
import os
import subprocess
import tempfile
import threading

import yaml

import peer
from runs import ROOT

RESNET, VGG = (os.path.join(ROOT, "deploy/jobs/", name) for name in ("cifar_resnet18.yaml", "cifar_vgg12_ist.yaml"))
METHODS = {"data_parallel": {"data_parallel": {}}, "local_sgd(20)": {"local_sgd": {"local_steps": 20}},
           "ist(20), all": {"ist": {"local_steps": 20, "cut": "all"}},
           "ist(20), all, rolling": {"ist": {"local_steps": 20, "cut": "all", "order": "rolling"}}}
LINEAR = {"ist(20), linear": {"ist": {"local_steps": 20, "cut": "linear"}}}  # of networks with hidden linear layers


def first_images(folder, count, to):
    """Fills the folder `to` with the first so many training images, and with a tenth as many test images."""
    record = 1 + 3 * 32 * 32
    for name, images in (("train_10k.bin.gz", count), ("test_2k.bin.gz", max(1, count // 10))):
        with gzip.open(os.path.join(folder, name)) as source, gzip.open(os.path.join(to, name), "wb", 1) as target:
            target.write(source.read(images * record))


def report_of(arguments, what, job, settings, flags=()):
    words = [arguments.binary, what, job, "--quiet"] + list(flags)
    for setting in ["data.directory=" + os.path.abspath(arguments.folder), "train.evaluate_every=0"] + settings:
        words += ["--set", setting]
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        done = subprocess.run(words + ["--report", report], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit("pictures.py: %s\n%s" % (" ".join(words), done.stderr))
        with open(report) as file:
            return json.load(file)


def job_settings(arguments, workers, seed, method):
    return ["seed=%d" % seed, "train.epochs=%d" % arguments.epochs, "cluster.workers=%d" % workers,
            "cluster.servers=%d" % min(2, workers), "method=" + json.dumps(method),
            "cluster.device=" + arguments.device, "train.precision=" + arguments.precision,
            "train.schedule={decay: {cosine: {examples: %d}}}" % (10000 * arguments.epochs)]


def pytorch(arguments, workers, seed):
    with open(RESNET) as file, tempfile.NamedTemporaryFile("w", suffix=".json") as job:
        content = yaml.safe_load(file)
        content["train"]["schedule"]["decay"]["cosine"]["examples"] = 10000 * arguments.epochs
        json.dump(content, job)
        job.flush()
        script = os.path.join(ROOT, "bench/training/pytorch_pictures_peer.py")
        done = peer.run([script, job.name, arguments.folder, "--seed", str(seed), "--workers", str(workers), "--epochs",
                         str(arguments.epochs), "--device", arguments.device, "--precision", arguments.precision])
    if done.returncode != 0:
        raise SystemExit("pictures.py: pytorch_pictures_peer.py: " + done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def mean(values):
    return sum(values) / len(values)


class Results:
    """{what was trained: [[accuracy, seconds] of Tessera, the same of PyTorch or None]}, kept in a file."""

    def __init__(self, path):
        self.path, self.found, self.lock = path, {}, threading.Lock()
        if path and os.path.exists(path):
            with open(path) as file:
                self.found = json.load(file)

    def add(self, what, result):
        with self.lock:
            self.found[what] = result
            if self.path:
                with open(self.path, "w") as file:
                    json.dump(self.found, file, indent=1, sort_keys=True)
                    file.write("\n")


def alone(arguments):
    workers = arguments.workers[0]
    found = {"tessera": [], "pytorch": []}
    kept = Results(arguments.results)

    def train(seed):
        what = "seed %d, %d workers, %d epochs, %s, %s" % (
            seed, workers, arguments.epochs, arguments.device, arguments.precision)
        if arguments.images:
            what += ", %d images" % arguments.images
        if what not in kept.found or (kept.found[what][1] is None and not arguments.skip_peer):
            kept.add(what, trained(seed))
        ours, theirs = kept.found[what]
        return ours, theirs

    def trained(seed):
        report = report_of(arguments, "run", RESNET, job_settings(arguments, workers, seed, METHODS["data_parallel"]))
        ours = (report["final"]["test_accuracy"], report["train_seconds"])
        if arguments.skip_peer:
            return ours, None
        peers = pytorch(arguments, workers, seed)
        return ours, (peers["test_accuracy"], peers["seconds"])

    def told(name, accuracy, seconds):
        return "   %s accuracy %.4f in %.1f s" % (name, accuracy, seconds)

    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        for i, (ours, theirs) in enumerate(pool.map(train, range(1, arguments.seeds + 1))):
            found["tessera"].append(ours)
            text = "seed %d" % (i + 1) + told("tessera", *ours)
            if theirs:
                found["pytorch"].append(theirs)
                text += told("pytorch", *theirs)
            print(text, flush=True)
    means = {name: (mean([a for a, _ in of]), mean([b for _, b in of])) for name, of in found.items() if of}
    text = "mean  " + "".join(told(name, *of) for name, of in means.items())
    if "pytorch" in means:
        text += "   time ratio %.2f" % (means["tessera"][1] / means["pytorch"][1])
    print(text)


def all_jobs(arguments):
    """(name, job, method) of each."""
    for name, job in (("ResNet-18", RESNET), ("VGG-12", VGG)):
        for method, recipe in dict(METHODS, **(LINEAR if job == VGG else {})).items():
            yield "%s, %s" % (name, method), job, recipe


def methods(arguments):
    print("| %d epochs, mean of %d seeds | workers | accuracy | MB of a worker |\n|---|---:|---:|---:|" % (
        arguments.epochs, arguments.seeds), flush=True)
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        asked = [(name, workers, [pool.submit(report_of, arguments, "run", job,
                                              job_settings(arguments, workers, seed, method))
                                  for seed in range(1, arguments.seeds + 1)])
                 for workers in arguments.workers for name, job, method in all_jobs(arguments)]
        for name, workers, answers in asked:
            reports = [answer.result() for answer in answers]
            traffic = reports[0]["traffic"]
            print("| %s | %d | %s | %.0f |" % (
                name, workers, "%.4f" % mean([report["final"]["test_accuracy"] for report in reports]),
                (traffic["push_payload_bytes"] + traffic["pull_payload_bytes"]) / workers / 1e6), flush=True)


def link(arguments):
    print("| seconds of an epoch, links of %s, %s a step | %s |\n|---|%s" % (
        arguments.link, arguments.step_time, " | ".join("%d workers" % k for k in arguments.workers),
        "---:|" * len(arguments.workers)), flush=True)
    for name, job, method in all_jobs(arguments):
        cells = []
        for workers in arguments.workers:
            report = report_of(arguments, "simulate", job, job_settings(arguments, workers, 1, method) + [
                "train.epochs=4", "cluster.servers=%d" % workers], [
                    "--machines", str(workers), "--bandwidth", arguments.link, "--latency", "100us", "--step-time",
                    arguments.step_time, "--stub-gradients"])
            cells.append("%.1f" % (report["train_seconds"] / 4))
        print("| %s | %s |" % (name, " | ".join(cells)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--methods", action="store_true")
    parser.add_argument("--link", default="", help="the bandwidth of each machine's link")
    parser.add_argument("--step-time", default="40ms", help="of the whole model, where machines are simulated")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--at-once", type=int, default=1, help="jobs at a time")
    parser.add_argument("--skip-peer", action="store_true")
    parser.add_argument("--results", help="a file of what each seed came to")
    parser.add_argument("--images", type=int, default=0, help="so many of the training images; 0: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="f32", choices=["f32", "tf32"])
    parser.add_argument("--binary", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    arguments = parser.parse_args()
    arguments.seeds = arguments.seeds or (1 if arguments.methods else 3)
    scratch = tempfile.TemporaryDirectory()
    if arguments.images:
        first_images(arguments.folder, arguments.images, scratch.name)
        arguments.folder = scratch.name
    if arguments.link or arguments.methods:
        return (link if arguments.link else methods)(arguments)
    if not arguments.skip_peer and arguments.device == "cpu":
        print(peer.check("pictures.py", "--skip-peer"), flush=True)
    return alone(arguments)


if __name__ == "__main__":
    main()
