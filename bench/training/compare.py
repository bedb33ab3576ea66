#!/usr/bin/python3
"""Trains the speech network with Tessera and with PyTorch over gloo, in turn on the same machine, and compares.

    bench/training/compare.py FOLDER [--epochs 3] [--repeat 3] [--accuracy 0.80] [--local-epochs 12] [--skip-peer]

FOLDER holds the speech data (deploy/fetch_data.sh --from DIR speech). Prints seconds per epoch of data parallel, and
seconds of training to an accuracy (interpolated) of local SGD with 20 local steps; medians over the repetitions, two
servers and two workers of one thread each. The peer needs Debian's python3-torch and libopenblas0-pthread: where its
product is not half as fast as oneDNN's there is no comparison.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import peer
from runs import ROOT, crossing, median, set_of


def tessera(job, folder, settings, binary):
    report = os.path.join(tempfile.mkdtemp(), "report.json")
    command = [binary, "run", os.path.join(ROOT, "deploy/jobs", job), "--quiet", "--report", report,
               "--set", "data.directory=" + os.path.abspath(folder)]
    for setting in settings:
        command += ["--set", setting]
    subprocess.run(command, check=True)
    with open(report) as file:
        return json.load(file)


def pytorch(folder, method, epochs, seed, evaluate):
    command = [peer.PYTHON, os.path.join(ROOT, "bench/training/pytorch_peer.py"), folder, "--method", method,
               "--epochs", str(epochs), "--seed", str(seed)] + (["--evaluate"] if evaluate else [])
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                            env=dict(os.environ, **peer.ENVIRONMENT)).stdout
    return json.loads(output.splitlines()[-1])


def show(name, ours, theirs):
    ours, theirs = median(ours), median(theirs) if theirs else None
    text = "%-44s tessera %s" % (name, "never" if ours is None else "%6.2f s" % ours)
    if theirs:
        text += "   pytorch %6.2f s   ratio %s" % (theirs, "-" if ours is None else "%.2f" % (ours / theirs))
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--local-epochs", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--accuracy", type=float, default=0.80)
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--skip-peer", action="store_true")
    parser.add_argument("--binary", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    arguments = parser.parse_args()
    precision = "train.precision=" + arguments.precision
    if not os.path.isdir(arguments.folder):
        raise SystemExit("compare.py: %s: no folder, want the speech data; %s" % (arguments.folder, set_of("speech")))
    if not arguments.skip_peer:
        print(peer.check("compare.py", "--skip-peer"), flush=True)

    ours, theirs = [], []
    for seed in range(7, 7 + arguments.repeat):
        report = tessera("speech.yaml", arguments.folder,
                         ["train.epochs=%d" % arguments.epochs, "train.evaluate_every=0", "seed=%d" % seed, precision],
                         arguments.binary)
        ours.append(report["train_seconds"] / arguments.epochs)
        if not arguments.skip_peer:
            found = pytorch(arguments.folder, "data_parallel", arguments.epochs, seed, False)
            theirs.append(found["seconds_per_epoch"])
    show("data_parallel, seconds per epoch", ours, theirs)

    ours, theirs = [], []
    for seed in range(7, 7 + arguments.repeat):
        report = tessera("speech_local_sgd.yaml", arguments.folder,
                         ["train.epochs=%d" % arguments.local_epochs, "train.evaluate_every=1", "seed=%d" % seed,
                          precision, "train.target_accuracy=%g" % arguments.accuracy], arguments.binary)
        ours.append(crossing(report["history"], arguments.accuracy))
        if not arguments.skip_peer:
            history = pytorch(arguments.folder, "local_sgd", arguments.local_epochs, seed, True)["history"]
            theirs.append(crossing(history, arguments.accuracy))
    show("local_sgd(20), seconds to %.2f" % arguments.accuracy, ours, theirs)


if __name__ == "__main__":
    sys.exit(main())
