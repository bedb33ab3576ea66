#!/usr/bin/python3
"""Trains ResNet-18 and VGG-12 on CIFAR-10: against PyTorch, and by several methods.

    bench/training/pictures.py FOLDER [--seeds 3] [--epochs 15] [--workers 2] [--device cuda] [--train tessera pytorch]
                               [--results FILE] [--images N]
    bench/training/pictures.py FOLDER --methods [--networks ResNet-18 VGG-12] [--seeds 1] [--epochs 15]
                               [--workers 2 4] [--device cuda] [--results FILE] [--at-once 4]
    bench/training/pictures.py FOLDER --link 10Gbit --step-time 40ms --workers 2 4 8

FOLDER holds the images (deploy/fetch_data.sh --from DIR cifar10). The first form trains ResNet-18
(deploy/jobs/cifar_resnet18.yaml) in turn with Tessera and with PyTorch, workers of one thread each, and prints
accuracies on the test images and seconds of training; --images N takes the first N training images alone, so that both
go in short turns where a machine's speed changes. The second prints accuracies and bytes of both networks by
data_parallel, local_sgd and ist. The third has the seconds of an epoch from simulations without mathematics on such
links, each machine with a worker and a server.

--results FILE keeps what each training came to, and one that is there is not done again, so that hours can be spent in
parts. --at-once N has several jobs share the machine, and --busy says that other work goes on there: seconds are not
kept. The peer needs Debian's python3-torch and libopenblas0-pthread.
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

NETWORKS = {"ResNet-18": os.path.join(ROOT, "deploy/jobs/cifar_resnet18.yaml"),
            "VGG-12": os.path.join(ROOT, "deploy/jobs/cifar_vgg12_ist.yaml")}
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
    with open(NETWORKS["ResNet-18"]) as file, tempfile.NamedTemporaryFile("w", suffix=".json") as job:
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
    """{what was trained: its accuracy, seconds and megabytes}, kept in a file."""

    def __init__(self, path):
        self.path, self.found, self.lock = path, {}, threading.Lock()
        if path and os.path.exists(path):
            with open(path) as file:
                self.found = json.load(file)

    def of(self, what, train):
        """What is kept under this name, or else what `train` returns."""
        if what not in self.found:
            result = train()
            with self.lock:
                self.found[what] = result
                if self.path:
                    with open(self.path, "w") as file:
                        json.dump(self.found, file, indent=1, sort_keys=True)
                        file.write("\n")
        return self.found[what]


def name_of(arguments, by, workers, seed):
    name = "%s, %d workers, %d epochs, %s, %s" % (by, workers, arguments.epochs, arguments.device, arguments.precision)
    if arguments.images:
        name += ", %d images" % arguments.images
    return name + ", seed %d" % seed


def kept_seconds(arguments, seconds):
    return None if arguments.busy or arguments.at_once > 1 else round(seconds, 1)


def tessera(arguments, kept, network, method, recipe, workers, seed):
    """A job's result, from the file where it is there."""
    def train():
        report = report_of(arguments, "run", NETWORKS[network], job_settings(arguments, workers, seed, recipe))
        traffic = report["traffic"]
        sent = traffic["push_payload_bytes"] + traffic["pull_payload_bytes"]
        return {"accuracy": report["final"]["test_accuracy"],
                "seconds": kept_seconds(arguments, report["train_seconds"]),
                "megabytes_of_a_worker": round(sent / workers / 1e6, 1)}
    return kept.of(name_of(arguments, "%s, %s" % (network, method), workers, seed), train)


def its_peer(arguments, kept, workers, seed):
    def train():
        found = pytorch(arguments, workers, seed)
        return {"accuracy": found["test_accuracy"], "seconds": kept_seconds(arguments, found["seconds"])}
    return kept.of(name_of(arguments, "ResNet-18 by PyTorch", workers, seed), train)


def told(name, results):
    text = "   %s accuracy %.4f" % (name, mean([result["accuracy"] for result in results]))
    seconds = [result["seconds"] for result in results]
    return text if None in seconds else text + " in %.1f s" % mean(seconds)


def alone(arguments):
    workers, kept = arguments.workers[0], Results(arguments.results)
    trained = {"tessera": lambda seed: tessera(arguments, kept, "ResNet-18", "data_parallel",
                                               METHODS["data_parallel"], workers, seed),
               "pytorch": lambda seed: its_peer(arguments, kept, workers, seed)}
    seeds = range(1, arguments.seeds + 1)
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        asked = [[(name, pool.submit(trained[name], seed)) for name in arguments.train] for seed in seeds]
        found = []
        for seed, answers in zip(seeds, asked):
            found.append({name: answer.result() for name, answer in answers})
            print("seed %d" % seed + "".join(told(name, [result]) for name, result in found[-1].items()), flush=True)
    means = {name: [results[name] for results in found] for name in arguments.train}
    text = "mean  " + "".join(told(name, results) for name, results in means.items())
    seconds = {name: [result["seconds"] for result in results] for name, results in means.items()}
    if len(seconds) == 2 and None not in sum(seconds.values(), []):
        text += "   time ratio %.2f" % (mean(seconds["tessera"]) / mean(seconds["pytorch"]))
    print(text)


def all_jobs(arguments):
    """(network, method, recipe) of each."""
    for network in arguments.networks:
        for method, recipe in dict(METHODS, **(LINEAR if network == "VGG-12" else {})).items():
            yield network, method, recipe


def methods(arguments):
    print("| %d epochs, mean of %d seeds | workers | accuracy | MB of a worker | seconds |" % (
        arguments.epochs, arguments.seeds))
    print("|---|---:|---:|---:|---:|", flush=True)
    kept = Results(arguments.results)
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        asked = [(network, method, workers, [pool.submit(tessera, arguments, kept, network, method, recipe, workers,
                                                         seed) for seed in range(1, arguments.seeds + 1)])
                 for network, method, recipe in all_jobs(arguments) for workers in arguments.workers]
        for network, method, workers, answers in asked:
            results = [answer.result() for answer in answers]
            seconds = [result["seconds"] for result in results]
            print("| %s, %s | %d | %.4f | %.0f | %s |" % (
                network, method, workers, mean([result["accuracy"] for result in results]),
                results[0]["megabytes_of_a_worker"], "" if None in seconds else "%.0f" % mean(seconds)), flush=True)


def link(arguments):
    print("| seconds of an epoch, links of %s, %s a step | %s |\n|---|%s" % (
        arguments.link, arguments.step_time, " | ".join("%d workers" % k for k in arguments.workers),
        "---:|" * len(arguments.workers)), flush=True)
    for network, method, recipe in all_jobs(arguments):
        cells = []
        for workers in arguments.workers:
            report = report_of(arguments, "simulate", NETWORKS[network], job_settings(arguments, workers, 1, recipe) + [
                "train.epochs=4", "cluster.servers=%d" % workers], [
                    "--machines", str(workers), "--bandwidth", arguments.link, "--latency", "100us", "--step-time",
                    arguments.step_time, "--stub-gradients"])
            cells.append("%.1f" % (report["train_seconds"] / 4))
        print("| %s, %s | %s |" % (network, method, " | ".join(cells)), flush=True)


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
    parser.add_argument("--busy", action="store_true", help="other work goes on here: keep no seconds")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--train", nargs="+", default=["tessera", "pytorch"], choices=["tessera", "pytorch"])
    parser.add_argument("--results", help="a file of what each training came to")
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
    if "pytorch" in arguments.train and arguments.device == "cpu":
        print(peer.check("pictures.py", "--train tessera"), flush=True)
    return alone(arguments)


if __name__ == "__main__":
    main()
