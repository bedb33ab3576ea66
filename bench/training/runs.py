"""What the scripts of bench/training and bench/network share: jobs of several methods, when they reached an accuracy
and what had been moved by then, and the table of it."""
import argparse
import ctypes
import os
import signal
import statistics

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
METHODS = {
    "data_parallel": "data_parallel: {}",
    "local_sgd": "local_sgd: {local_steps: 20}",
    "ist": "ist: {local_steps: 20}",
}
# Seconds to that accuracy on Google's speech commands, two hidden layers, over 2, 4 and 8 machines: Yuan et al.,
# Distributed Learning of Deep Neural Networks using Independent Subnet Training, table 1.
PAPER_ACCURACY = 0.75
PAPER = {
    "data_parallel": {2: 4534, 4: 9340, 8: 14886},
    "local_sgd": {2: 2032, 4: 4107, 8: 6539},
    "ist": {2: 812, 4: 664, 8: 1161},
}


# The names that deploy/fetch_data.sh gives the sets, and the folder that it takes them from where they have no
# public address.
SET_FOLDERS = {"fashion": ("fashion_mnist",), "speech": ("speech", "arabic_speech_commands"),
               "cifar": ("cifar10", "cifar10_12k")}


def set_of(name):
    """How to come by a set."""
    fetched, *prepared = SET_FOLDERS[name]
    if not prepared:
        return "deploy/fetch_data.sh %s gets it" % fetched
    return ("it has no public address as it is read here: deploy/fetch_data.sh %s says what to prepare it from, and "
            "with --from DIR takes it from DIR/%s" % (fetched, prepared[0]))


def set_folder(folder, name):
    """Where the data of a set are, below `folder`."""
    for names in SET_FOLDERS[name]:
        if os.path.isdir(os.path.join(folder, names)):
            return os.path.abspath(os.path.join(folder, names))
    raise SystemExit("%s: has no %s; %s" % (folder, " or ".join(SET_FOLDERS[name]), set_of(name)))


SCRIPT = os.getpid()
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """For subprocess: the child does not outlive the script, however that ends."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != SCRIPT:  # It has ended before it could be asked for.
        os._exit(1)


def parser_of(description, methods):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the data: deploy/fetch_data.sh --from DIR speech")
    parser.add_argument("--job", default=os.path.join(ROOT, "deploy/jobs/speech.yaml"), help="all but the method")
    parser.add_argument("--methods", nargs="+", choices=methods, default=["data_parallel", "local_sgd", "ist"])
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--seeds", nargs="+", type=int, default=[7])
    parser.add_argument("--to", type=float, default=0.75, help="the test accuracy to reach")
    parser.add_argument("--epochs", type=int, default=100, help="at most")
    parser.add_argument("--seconds-max", type=float, default=1800,
                        help="of one run by the wall clock, evaluations included; then it is asked to end")
    parser.add_argument("--precision", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--tessera", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    return parser


def overrides(options, method, workers, seed, **more):
    """--set flags that make a run of options.job."""
    keys = {
        "data.directory": os.path.abspath(options.folder),
        "method": "{%s}" % METHODS.get(method, method),
        "cluster.workers": workers,
        "seed": seed,
        "train.epochs": options.epochs,
        "train.evaluate_every": 1,
        "train.target_accuracy": options.to,
        "train.precision": options.precision,
    }
    keys.update(more)
    return [word for key, value in keys.items() for word in ("--set", "%s=%s" % (key, value))]


def crossing(history, accuracy, key="seconds"):
    """Training seconds at which the accuracy is first reached, linear between evaluations; None if never."""
    before = (0.0, 0.0)
    for entry in history:
        now = (entry[key], entry["test_accuracy"])
        if now[1] >= accuracy:
            return before[0] + (now[0] - before[0]) * (accuracy - before[1]) / (now[1] - before[1])
        before = now
    return None


def median(values):
    """None where half of them or more are None."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if len(known) * 2 > len(values) else None


def payload(report):
    """Bytes of values that all workers pulled and pushed for training."""
    return report["traffic"]["pull_payload_bytes"] + report["traffic"]["push_payload_bytes"]


def size(count):
    return "%.2f GB" % (count / 1e9) if count >= 1e9 else "%.0f MB" % (count / 1e6)


def cell(reports, options):
    """Seconds and bytes to the accuracy, medians; what was reached where most runs have not come there."""
    seconds = median([crossing(report["history"], options.to) for report in reports])
    if seconds is None:
        last = [report["history"][-1]["seconds"] for report in reports]
        best = [max(entry["test_accuracy"] for entry in report["history"]) for report in reports]
        return "> %.1f s, %.2f reached, %s" % (
            statistics.median(last), statistics.median(best), size(statistics.median(map(payload, reports))))
    steps = [crossing(report["history"], options.to, "step") for report in reports]
    moved = median([s and payload(report) * s / report["steps"] for s, report in zip(steps, reports)])
    return "%.1f s, %s" % (seconds, size(moved))


def measure(options, train):
    """{method: {workers: [report of each seed]}}. train(method, workers, seed) gives {method: report}. Methods take
    turns, so that a machine that gets slower does so for all."""
    found = {}
    for seed in options.seeds:
        for workers in options.workers:
            for method in options.methods:
                for name, report in train(method, workers, seed).items():
                    found.setdefault(name, {}).setdefault(workers, []).append(report)
                    last = report["history"][-1]
                    print("%s, %d workers, seed %d: %s; ended with %.4f after %.1f s, %.1f epochs" % (
                        name, workers, seed, cell([report], options), last["test_accuracy"], last["seconds"],
                        last["epoch"]), flush=True)
    return found


def table(options, found):
    """Markdown, beside the paper's."""
    counts = options.workers
    paper = PAPER if options.to == PAPER_ACCURACY else {}
    others = [method for method in found if method in METHODS and method != "ist"] if "ist" in found else []
    ratios = {method: "%s / ist" % method for method in others}
    header = ["to %.2f" % options.to] + ["%d workers" % k for k in counts]
    rows = [[name] + [cell(by_workers[k], options) if k in by_workers else "-" for k in counts]
            for name, by_workers in found.items()]
    rows += [[name] + [ratio(found[method][k], found["ist"][k], options) for k in counts]
             for method, name in ratios.items()]
    if paper:
        header += ["paper: %d" % k for k in counts]
        for row, method in zip(rows, list(found) + list(ratios)):
            row += [published(method, k, row[0] in ratios.values()) for k in counts]
    lines = [header, ["---"] * len(header)] + rows
    return "\n".join("| %s |" % " | ".join(line) for line in lines)


def published(method, workers, over_ist):
    if workers not in PAPER.get(method, {}):
        return "-"
    seconds = PAPER[method][workers]
    return "%.1f" % (seconds / PAPER["ist"][workers]) if over_ist else "%d s" % seconds


def ratio(reports, ist, options):
    seconds, base = (median([crossing(r["history"], options.to) for r in of]) for of in (reports, ist))
    if base is None:
        return "-"
    if seconds is None:
        return "> %.1f" % (statistics.median(report["history"][-1]["seconds"] for report in reports) / base)
    return "%.1f" % (seconds / base)
