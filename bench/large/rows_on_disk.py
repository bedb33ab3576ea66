#!/usr/bin/python3
"""Data sets 16 times larger than data.memory, against the same sets in memory: rates of training and peaks.

    bench/large/rows_on_disk.py FOLDER [--repeat 5] [--sets cifar cifar_conv pictures]

FOLDER holds cifar10 (or cifar10_12k) and ants_bees_jpeg. Each set is trained by one worker of one thread, in turns with
all rows held and with data.memory at a sixteenth of the training set, after a run that warms the page cache. It prints
rows per second, the medians of both and of the ratios of neighbours, and the peaks of the worker. A peak keeps its
promise where it is at most

    the peak with all rows held - the rows' bytes + data.memory + four minibatches and a picture in each reading thread

Exit code 1: a ratio is below 0.9, or a peak above its promise.

    cifar        records of 3,073 bytes, deploy/jobs/cifar.yaml: a step takes so little that reading shows
    cifar_conv   the same records, deploy/jobs/cifar_conv.yaml
    pictures     photographs of about 500 x 340, resized to 256 and cropped to 224, by the same convolutions
"""
import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIMES = 16
BATCHES_AHEAD = 4
RATE_AT_LEAST = 0.9
CIFAR_BYTES = 3072
PICTURE_BYTES = 3 * 224 * 224
PICTURE_REPEATS = 16  # of each photograph, so that the set is larger than the program
PIXELS_MAX = 1 << 20


def folder_of(folder, *names):
    for name in names:
        if os.path.isdir(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise SystemExit("%s: has no %s" % (folder, " or ".join(names)))


def records(folder, scratch):
    """Settings of CIFAR's records, which can be read in place once they are no longer compressed."""
    sizes = []
    for name in ("train_10k.bin", "test_2k.bin"):
        path = os.path.join(scratch, name)
        with gzip.open(os.path.join(folder_of(folder, "cifar10", "cifar10_12k"), name + ".gz")) as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(content)
        sizes.append(len(content) // (CIFAR_BYTES + 1) * CIFAR_BYTES)
    return sizes, ["data.directory=" + scratch, "data.train.features=train_10k.bin", "data.test.features=test_2k.bin"]


def photographs(folder, scratch):
    pictures = folder_of(folder, "ants_bees_jpeg")
    sizes = []
    for part, times in (("train", PICTURE_REPEATS), ("val", 1)):
        lines = []
        for label, name in enumerate(sorted(os.listdir(os.path.join(pictures, part)))):
            one = os.path.join(os.path.abspath(pictures), part, name)
            lines += ["%s %d\n" % (os.path.join(one, file), label) for file in sorted(os.listdir(one))]
        with open(os.path.join(scratch, part + ".txt"), "w") as file:
            file.writelines(lines * times)
        sizes.append(len(lines) * times * PICTURE_BYTES)
    return sizes, ["data={format: images, directory: %s, train: {features: train.txt}, test: {features: val.txt}, "
                   "resize: 256, crop: 224, normalize: {mean: 0.475, stddev: 0.252}}" % scratch,
                   "model.input=[3, 224, 224]", "train.batch_size=16"]


# The job, its data, the steps of a run, rows of a minibatch, and the threads that read ahead.
SETS = {
    "cifar": ("cifar.yaml", records, 1500, 64, 1),
    "cifar_conv": ("cifar_conv.yaml", records, 200, 64, 1),
    "pictures": ("cifar_conv.yaml", photographs, 12, 16, 1),
}


def train(arguments, job, settings):
    """Rows per second, and the worker's peak in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [arguments.binary, "run", os.path.join(ROOT, "deploy/jobs", job), "--quiet", "--report", report]
        for setting in settings:
            command += ["--set", setting]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        with open(report) as file:
            told = json.load(file)
    return told["examples_per_second"], told["memory"]["worker_peak_rss_bytes"][0]


def measure(arguments, name):
    job, prepare, steps, batch, threads = SETS[name]
    with tempfile.TemporaryDirectory() as scratch:
        sizes, settings = prepare(arguments.folder, scratch)
        memory = sizes[0] // TIMES
        settings += ["train.epochs=0", "train.steps=%d" % steps, "train.evaluate_every=0", "cluster.workers=1",
                     "cluster.servers=1", "cluster.threads=1"] + arguments.settings
        on_disk = settings + ["data.memory=%d" % memory, "data.threads=%d" % threads]
        train(arguments, job, on_disk)
        runs = [(train(arguments, job, settings), train(arguments, job, on_disk)) for _ in range(arguments.repeat)]
    held, stored = ([run[side][0] for run in runs] for side in (0, 1))
    ratio = statistics.median(b / a for a, b in zip(held, stored))
    held_peak, peak = (statistics.median(run[side][1] for run in runs) for side in (0, 1))
    ahead = BATCHES_AHEAD * batch * sizes[0] // rows_of(name, sizes[0]) + threads * 4 * PIXELS_MAX
    promise = held_peak - sum(sizes) + memory + ahead
    print("%-11s %8.1f MB of rows, data.memory %6.2f MB: %8.1f rows/s held, %8.1f on disk, ratio %.2f (%s); "
          "peak %.1f MB held, %.1f on disk, promised %.1f"
          % (name, sizes[0] / 1e6, memory / 1e6, statistics.median(held), statistics.median(stored), ratio,
             " ".join("%.2f" % (b / a) for a, b in zip(held, stored)), held_peak / 1e6, peak / 1e6, promise / 1e6),
          flush=True)
    return ratio >= RATE_AT_LEAST and peak <= promise


def rows_of(name, size):
    return size // (PICTURE_BYTES if name == "pictures" else CIFAR_BYTES)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the data")
    parser.add_argument("--sets", nargs="+", choices=sorted(SETS), default=sorted(SETS))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--tessera", dest="binary", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    arguments = parser.parse_args()
    return 0 if all([measure(arguments, name) for name in arguments.sets]) else 1


if __name__ == "__main__":
    sys.exit(main())
