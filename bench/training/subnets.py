#!/usr/bin/python3
"""Independent subnets on real data: whole jobs on this machine, side by side with other methods, PyTorch and ensembles.

    bench/training/subnets.py FOLDER
    bench/training/subnets.py FOLDER --workers 2 --to 0.80 --seeds 7 8 9 --methods ist pytorch_ist [--precision bf16]
    bench/training/subnets.py FOLDER --workers 2 --to 0.80 --seeds 7 8 9 --methods ist --epochs 24 --to-the-end
    bench/training/subnets.py FOLDER --ensemble --workers 2 --seeds 7 8 9 --epochs 24

The first trains to 0.75 with 2, 4 and 8 workers, beside the paper's table 1; the third, what 24 epochs give.

FOLDER holds the speech data (deploy/fetch_data.sh --from DIR speech). Workers have one thread each; more of them than
there are cores share the cores, and the seconds are what passed. Seconds are of training, interpolated between
evaluations, which are not in them; bytes are the values that all workers pulled and pushed until then. Medians over the
seeds.

The peer pytorch_ist (pytorch_ist_peer.py; wants python3-torch and libopenblas0-pthread) is scored as published and with
calibrated constants.
--ensemble compares test accuracies after all epochs, with one hidden layer and with two.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

import peer
import runs

# To finish an exchange, evaluate and report, once asked.
DRAIN_SECONDS_MAX = 120


def run(options, flags):
    """The report of one job; one that takes too long is asked to end."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        job = subprocess.Popen([options.tessera, "run", options.job, "--quiet", "--report", path] + flags,
                               stderr=subprocess.PIPE, text=True, preexec_fn=runs.die_with_parent)
        wanted = 0
        try:
            try:
                error = job.communicate(timeout=options.seconds_max)[1]
            except subprocess.TimeoutExpired:
                job.send_signal(signal.SIGTERM)
                wanted = -signal.SIGTERM  # A run ends by the signal that it got.
                error = job.communicate(timeout=DRAIN_SECONDS_MAX)[1]
        finally:
            job.kill()
        if job.returncode != wanted:
            sys.exit(error)
        with open(path) as file:
            return json.load(file)


def published(options, workers, seed):
    """Its two scores as two reports."""
    command = [peer.PYTHON, os.path.join(runs.ROOT, "bench/training/pytorch_ist_peer.py"), options.folder,
               "--workers", str(workers), "--epochs", str(options.epochs), "--seed", str(seed)]
    if not options.to_the_end:
        command += ["--to", str(options.to)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, **peer.ENVIRONMENT),
                          preexec_fn=runs.die_with_parent)
    if done.returncode != 0:
        sys.exit(done.stderr)
    report = json.loads(done.stdout.splitlines()[-1])
    report["traffic"] = {"pull_payload_bytes": report["payload_bytes"], "push_payload_bytes": 0}
    as_published = [dict(entry, test_accuracy=entry["batch_accuracy"]) for entry in report["history"]]
    return {"pytorch_ist, scored as published": dict(report, history=as_published),
            "pytorch_ist, scored with constants": report}


def compare(options):
    def train(method, workers, seed):
        if method == "pytorch_ist":
            return published(options, workers, seed)
        more = {"train.target_accuracy": 0} if options.to_the_end else {}
        return {method: run(options, runs.overrides(options, method, workers, seed, **more))}

    if "pytorch_ist" in options.methods:
        print(peer.check("subnets.py", "--methods without pytorch_ist"), flush=True)
    found = runs.measure(options, train)
    print("\n" + runs.table(options, found))
    if options.to_the_end:
        for method, by_workers in found.items():
            for workers, reports in by_workers.items():
                last = [report["history"][-1]["test_accuracy"] for report in reports]
                print("%s, %d workers, after %d epochs: %s, median %.4f" % (
                    method, workers, options.epochs, " ".join("%.4f" % x for x in last), statistics.median(last)))


def layers(options, hidden):
    """The speech network with so many hidden layers, as the job file writes it."""
    text = "{linear: {units: %d, bias: false}}, batch_norm, relu, " % options.width * hidden
    return "[%s{linear: {units: %d, bias: false}}, {batch_norm: {affine: false}}]" % (text, options.classes)


def ensemble(options):
    workers = options.workers[0]
    print("| after %d epochs, %d workers, seeds %s | ensemble | ist |\n|---|---|---|" % (
        options.epochs, workers, " ".join(map(str, options.seeds))), flush=True)
    for hidden in (1, 2):
        cells = []
        for method in ("ensemble: {}", runs.METHODS["ist"]):
            # An ensemble has one model only at its end.
            reports = [run(options, runs.overrides(options, method, workers, seed, **{
                "train.evaluate_every": 0, "train.target_accuracy": 0, "model.layers": layers(options, hidden)}))
                for seed in options.seeds]
            scores = [report["final"]["test_accuracy"] for report in reports]
            cells.append("%s, median %.3f" % (" ".join("%.3f" % x for x in scores), statistics.median(scores)))
        print("| %d hidden layer%s of %d | %s |" % (hidden, "s" * (hidden > 1), options.width, " | ".join(cells)),
              flush=True)


def main():
    parser = runs.parser_of(__doc__, list(runs.METHODS) + ["pytorch_ist"])
    parser.add_argument("--to-the-end", action="store_true", help="train all epochs, and print what they gave")
    parser.add_argument("--ensemble", action="store_true", help="against ist, at the first number of workers")
    parser.add_argument("--width", type=int, default=2048, help="of hidden layers, with --ensemble")
    parser.add_argument("--classes", type=int, default=40, help="of the data, with --ensemble")
    options = parser.parse_args()
    ensemble(options) if options.ensemble else compare(options)


if __name__ == "__main__":
    main()
