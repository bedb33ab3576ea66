#!/usr/bin/env python3
"""What staleness does to training, and what weights and softsync do about it.

Simulates many workers on Fashion-MNIST (real gradients, simulated time) at several learning rates
with each of four methods, and prints the mean test accuracy over the seeds; --plot writes it as
SVG. Zhang, Gupta, Lian, Liu: Staleness-aware Async-SGD for distributed deep learning, IJCAI 2016,
is where the effect was published.

    bench/consistency/staleness.py --data data/fashion_mnist --plot docs/staleness.svg
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INVERSE = "staleness: {inverse: {scale: 1.0}}"
METHODS = {
    "async_sgd, constant": "async_sgd: {}",
    "async_sgd, inverse": "async_sgd: {%s}" % INVERSE,
    "softsync, constant": "softsync: {pushes: %d}",
    "softsync, inverse": "softsync: {pushes: %d, " + INVERSE + "}",
}
COLORS = {"async_sgd, constant": "#c0392b", "async_sgd, inverse": "#2471a3",
          "softsync, constant": "#e08e0b", "softsync, inverse": "#1e8449"}


def simulate(options, method, rate, seed):
    """The report of one simulated job."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        train = "train={batch_size: %d, epochs: %d, evaluate_every: %d, optimizer: {sgd: {learning_rate: %g}}}" % (
            options.batch, options.epochs, options.epochs, rate)
        command = [options.tessera, "simulate", os.path.join(ROOT, "deploy/jobs/fashion_mnist.yaml"),
                   "--set", "data.directory=" + os.path.abspath(options.data), "--set", "method={%s}" % method,
                   "--set", train, "--set", "seed=%d" % seed, "--workers", str(options.workers), "--servers", "1",
                   "--bandwidth", "10Gbit", "--latency", "50us", "--step-time", "20ms", "--speed-spread", "0.2",
                   "--step-jitter", "0.2", "--quiet", "--report", report]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        if done.returncode == 0:
            with open(report) as file:
                return json.load(file)
        # Values that are no longer finite end a job: as bad as training can go.
        if "not finite" in done.stderr:
            return {"final": {"test_accuracy": 0.1}, "staleness": {"mean": float("nan")}}
        sys.exit(done.stderr)


def measure(options):
    """{method: {rate: [accuracy of each seed]}}, and the mean staleness of each method."""
    accuracies, staleness = {}, {}
    for name, text in METHODS.items():
        method = text % options.pushes if "%d" in text else text
        for rate in options.rates:
            reports = [simulate(options, method, rate, seed) for seed in range(1, options.seeds + 1)]
            scores = [report["final"]["test_accuracy"] for report in reports]
            accuracies.setdefault(name, {})[rate] = scores
            staleness[name] = reports[0]["staleness"]["mean"]
            print("%-20s rate %-5g accuracy %.4f  (%s)" % (
                name, rate, statistics.mean(scores), " ".join("%.3f" % score for score in scores)), flush=True)
    return accuracies, staleness


def table(options, accuracies, staleness):
    lines = ["| method | mean staleness | " + " | ".join("rate %g" % rate for rate in options.rates) + " |",
             "|---|---|" + "---|" * len(options.rates)]
    for name, by_rate in accuracies.items():
        cells = " | ".join("%.3f" % statistics.mean(by_rate[rate]) for rate in options.rates)
        lines.append("| %s | %.1f | %s |" % (name, staleness[name], cells))
    return "\n".join(lines)


def title(options):
    return "%d simulated workers, Fashion-MNIST, %d epoch%s, %d seeds; softsync of %d pushes" % (
        options.workers, options.epochs, "" if options.epochs == 1 else "s", options.seeds, options.pushes)


def plot(options, accuracies):
    """Accuracy over learning rate: a line through the means, a bar from the worst to the best seed."""
    width, height, left, top, right, bottom = 720, 420, 64, 40, 190, 56
    rates = options.rates

    def x(i, shift=0.0):
        return left + (i + 0.5) * (width - left - right) / len(rates) + shift

    def y(score):
        return top + (1 - score) * (height - top - bottom)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">' % (
        width, height), '<rect width="%d" height="%d" fill="white"/>' % (width, height),
        '<text x="%d" y="22">%s</text>' % (left, title(options))]
    for tick in range(0, 11, 2):
        score = tick / 10
        out.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>' % (
            left, width - right, y(score), y(score)))
        out.append('<text x="%d" y="%.1f" text-anchor="end">%.1f</text>' % (left - 8, y(score) + 4, score))
    for i, rate in enumerate(rates):
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%g</text>' % (x(i), height - bottom + 20, rate))
    out.append('<text x="%.1f" y="%d" text-anchor="middle">learning rate</text>' % (
        (left + width - right) / 2, height - 14))
    out.append('<text transform="translate(18 %d) rotate(-90)" text-anchor="middle">test accuracy</text>' % (
        height / 2))
    for k, (name, by_rate) in enumerate(accuracies.items()):
        color, shift = COLORS[name], 4.0 * (k - 1.5)
        points = " ".join("%.1f,%.1f" % (x(i, shift), y(statistics.mean(by_rate[r]))) for i, r in enumerate(rates))
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (points, color))
        for i, rate in enumerate(rates):
            out.append('<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s"/>' % (
                x(i, shift), x(i, shift), y(min(by_rate[rate])), y(max(by_rate[rate])), color))
            out.append('<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>' % (
                x(i, shift), y(statistics.mean(by_rate[rate])), color))
        out.append('<text x="%d" y="%d" fill="%s">%s</text>' % (width - right + 16, top + 20 + 22 * k, color, name))
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.path.join(ROOT, "data/fashion_mnist"), help="the folder with the files")
    parser.add_argument("--tessera", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    parser.add_argument("--workers", type=int, default=30)
    parser.add_argument("--pushes", type=int, default=5, help="of one softsync update")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
    parser.add_argument("--plot", help="write an SVG here")
    options = parser.parse_args()
    accuracies, staleness = measure(options)
    print("\n" + table(options, accuracies, staleness))
    if options.plot:
        with open(options.plot, "w") as file:
            file.write(plot(options, accuracies))


if __name__ == "__main__":
    main()
