#!/usr/bin/python3
"""Trains the small GPT of deploy/jobs/shakespeare_gpt.yaml, alone against PyTorch, or by several methods.

    bench/training/text.py FOLDER [--seeds 3] [--steps 2000] [--skip-peer] [--job JOB] [--device cuda --precision bf16]
    bench/training/text.py FOLDER --methods [--workers 4] [--seeds 1] [--steps 2000] [--device cuda] [--at-once 4]
    bench/training/text.py FOLDER --slow [--workers 4] [--seeds 1] [--steps 2000] [--at-once 2]
    bench/training/text.py FOLDER --link 100Mbit --step-time 65ms [--results FILE of a run with --methods]

FOLDER holds the text (deploy/fetch_data.sh shakespeare). The first form trains in turn with Tessera and with PyTorch,
one worker of one thread each, and prints losses on the test text and seconds of training. The second prints losses,
steps to --to and bytes for each worker of many methods; with --at-once several jobs share the machine, so that their
seconds say nothing. The third simulates methods that wait for nobody, or not for all, with one worker three times
slower. The fourth has the seconds of a step from a simulation without mathematics on such links, and multiplies the
steps that --results found. The peer needs Debian's python3-torch and libopenblas0-pthread.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import subprocess
import tempfile

import yaml

import peer
from runs import ROOT

METHODS = {
    "data_parallel": {"data_parallel": {}},
    "local_sgd(20)": {"local_sgd": {"local_steps": 20}},
    "local_sgd(50)": {"local_sgd": {"local_steps": 50}},
    "diloco(50)": {"diloco": {"local_steps": 50}},
    "diloco(50), overlap": {"diloco": {"local_steps": 50, "overlap": True}},
    "diloco(50), asynchronous": {"diloco": {"local_steps": 50, "asynchronous": True}},
    "diloco(50), quorum of 3": {"diloco": {"local_steps": 50, "quorum": {"pushes": 3, "grace": "1s"}}},
    "ist(20), random": {"ist": {"local_steps": 20, "cut": "all"}},
    "ist(20), rolling": {"ist": {"local_steps": 20, "cut": "all", "order": "rolling"}},
    "ist(50), random": {"ist": {"local_steps": 50, "cut": "all"}},
    "ist(50), rolling": {"ist": {"local_steps": 50, "cut": "all", "order": "rolling"}},
}
# With one worker three times slower: those that wait for all are waited for.
SLOW_METHODS = ("diloco(50)", "diloco(50), asynchronous", "diloco(50), quorum of 3")
# Jobs that follow one another, each with as many steps and beginning with the values that the one before it has ended
# with: what the field offers to independent subnets.
LOCAL, ROLLING_20, ROLLING_50 = (METHODS[name] for name in ("local_sgd(20)", "ist(20), rolling", "ist(50), rolling"))
PHASES = {
    "local_sgd(20) 400 steps, ist(20), rolling": ((LOCAL, 400), (ROLLING_20, 1600)),
    "ist(20), rolling, local_sgd(20) the last 400 steps": ((ROLLING_20, 1600), (LOCAL, 400)),
    "ist(50), rolling, local_sgd(20) the last 400 steps": ((ROLLING_50, 1600), (LOCAL, 400)),
    "ist(50), rolling, local_sgd(20) the last 600 steps": ((ROLLING_50, 1400), (LOCAL, 600)),
    "local_sgd(20) 200 steps, ist(50), rolling, local_sgd(20) the last 400": (
        (LOCAL, 200), (ROLLING_50, 1400), (LOCAL, 400)),
    "local_sgd(20) 400 steps, diloco(50)": ((LOCAL, 400), (METHODS["diloco(50)"], 1600)),
}
# Other rates than the job's 0.001, and other outer optimizers.
OTHER_DILOCO = {"diloco": {"local_steps": 50, "outer_learning_rate": 1.0, "outer_momentum": 0.5}}
RATES = {"data_parallel": METHODS["data_parallel"], "local_sgd(50)": METHODS["local_sgd(50)"],
         "diloco(50)": METHODS["diloco(50)"], "diloco(50), outer rate 1, momentum 0.5": OTHER_DILOCO,
         "ist(50), rolling": ROLLING_50}
# The model whole, and in fragments that take turns, with the outer optimizer that suits so few exchanges.
FRAGMENTS = {"diloco(48)": {}, "diloco(48), 8 fragments": {"fragments": 8},
             "diloco(48), 8 fragments, delay 2, alpha 0.5": {"fragments": 8, "delay": 2, "alpha": 0.5},
             "diloco(48), 8 fragments, delay 6, alpha 0.5": {"fragments": 8, "delay": 6, "alpha": 0.5}}
RATES.update({name: {"diloco": dict(OTHER_DILOCO["diloco"], local_steps=48, **keys)}
              for name, keys in FRAGMENTS.items()})
BEGUN = {"local_sgd(20) 400 steps, diloco(50), outer rate 1, momentum 0.5": ((LOCAL, 400), (OTHER_DILOCO, 1600))}


def block(units, heads, head_size, hidden):
    """Layers of a block of the model whose subnets have so many heads and hidden units."""
    attention = {"attention": {"heads": heads, "head_size": head_size}}
    hidden_layers = ["layer_norm", {"linear": {"units": hidden}}, "gelu", {"linear": {"units": units}}]
    return [{"residual": {"layers": ["layer_norm", attention]}}, {"residual": {"layers": hidden_layers}}]


def network(units, heads, head_size, hidden):
    return [{"embedding": {"units": units, "stddev": 0.02}},
            {"repeat": {"times": 4, "layers": block(units, heads, head_size, hidden)}}, "layer_norm",
            {"linear": {"units": "vocabulary", "tied": True, "bias": False}}]


# What a worker of four has of the model, trained for itself: as many heads and hidden units of the model's width, and a
# network that is a quarter as wide everywhere.
ALONE = {"one head and 128 hidden units, alone": network(128, 1, 32, 128),
         "a quarter of the width, alone": network(32, 1, 32, 128)}


def command(arguments, what, settings):
    words = [arguments.binary, what, arguments.job, "--quiet"]
    # Several jobs may share the machine, and none of their workers is to be missed.
    for setting in ["data.directory=" + os.path.abspath(arguments.folder), "cluster.device=" + arguments.device,
                    "cluster.lease_timeout=300s",
                    "train.precision=" + arguments.precision] + settings:
        words += ["--set", setting]
    return words


def report_of(words):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        done = subprocess.run(words + ["--report", report], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit("text.py: %s\n%s" % (" ".join(words), done.stderr))
        with open(report) as file:
            found = json.load(file)
    if found.get("members", {}).get("lost"):
        raise SystemExit("text.py: a worker was lost for its lease, and the others trained without it: the machine is "
                         "too busy for this measurement")
    return found


def pytorch(arguments, seed):
    with open(arguments.job) as file, tempfile.NamedTemporaryFile("w", suffix=".json") as job:
        json.dump(yaml.safe_load(file), job)
        job.flush()
        script = os.path.join(ROOT, "bench/training/pytorch_text_peer.py")
        done = peer.run([script, job.name, arguments.folder, "--seed", str(seed), "--steps", str(arguments.steps),
                         "--device", arguments.device, "--precision", arguments.precision] +
                        ["--compile"] * arguments.compile)
    if done.returncode != 0:
        raise SystemExit("text.py: pytorch_text_peer.py: " + done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def seeds_of(arguments):
    return range(arguments.first_seed, arguments.first_seed + arguments.seeds)


def mean(values):
    return sum(values) / len(values)


def crossing(history, loss):
    """Steps to the loss, linear between evaluations; None if it is not reached."""
    before = None
    for entry in history:
        now = (entry["step"], entry["test_loss"])
        if now[1] <= loss:
            return now[0] if before is None else before[0] + (now[0] - before[0]) * (before[1] - loss) / (
                before[1] - now[1])
        before = now
    return None


def job_settings(arguments, seed, method, workers=None, steps=None, decay_steps=None):
    """--set of a job of several workers: its steps, and those after which the rate has fallen; a twentieth of these
    warms it up."""
    workers, steps = workers or arguments.workers, steps or arguments.steps
    examples = 12 * workers * (decay_steps or steps)
    return ["seed=%d" % seed, "train.steps=%d" % steps, "method=" + json.dumps(method), "cluster.workers=%d" % workers,
            "cluster.servers=%d" % min(2, workers),
            "train.schedule={warmup: %d, decay: {cosine: {examples: %d, floor: 0.1}}}" % (examples // 20, examples)]


def phased(arguments, seed, phases, settings=()):
    """Jobs one after the other as one report. All but the last one have a rate that would fall until the last step."""
    history, passed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        begun, bytes_before = [], collections.Counter()
        for i, (method, steps) in enumerate(phases):
            steps = steps * arguments.steps // sum(steps for _, steps in phases)
            is_last = i == len(phases) - 1
            if not is_last:
                kept = os.path.join(folder, str(i))
                more = ["checkpoint.directory=" + kept]
            report = report_of(command(arguments, "run", job_settings(
                arguments, seed, method, steps=steps, decay_steps=steps if is_last else arguments.steps) +
                list(settings) + begun + ([] if is_last else more)))
            if not is_last:
                begun = ["model.init=%s.safetensors" % kept]
                subprocess.run([arguments.binary, "export", kept, kept + ".safetensors", "--quiet"], check=True)
            history += [dict(entry, step=entry["step"] + passed) for entry in report["history"]]
            passed += steps
            for key in ("push_payload_bytes", "pull_payload_bytes"):
                bytes_before[key] += report["traffic"][key]
                report["traffic"][key] = bytes_before[key]
    return dict(report, history=history, steps=passed)


def alone(arguments):
    ours, theirs = [], []
    for seed in seeds_of(arguments):
        report = report_of(command(arguments, "run", [
            "seed=%d" % seed, "train.steps=%d" % arguments.steps, "train.evaluate_every=0"]))
        ours.append((report["final"]["test_loss"], report["train_seconds"]))
        text = "seed %d   tessera loss %.4f in %.1f s" % ((seed,) + ours[-1])
        if not arguments.skip_peer:
            found = pytorch(arguments, seed)
            theirs.append((found["test_loss"], found["seconds"]))
            text += "   pytorch loss %.4f in %.1f s   time ratio %.2f" % (theirs[-1] + (ours[-1][1] / theirs[-1][1],))
        print(text, flush=True)
    text = "mean     tessera loss %.4f" % mean([loss for loss, _ in ours])
    if theirs:
        text += "   pytorch loss %.4f   time ratio %.2f" % (
            mean([loss for loss, _ in theirs]), mean([a[1] for a in ours]) / mean([b[1] for b in theirs]))
    print(text)


def methods(arguments):
    """Jobs on this machine, --at-once of them at a time; {name: [report of each seed]}."""
    jobs = {}
    for name, method in METHODS.items():
        jobs[name] = lambda seed, method=method: report_of(command(
            arguments, "run", job_settings(arguments, seed, method)))
    for name, layers in ALONE.items():
        jobs[name] = lambda seed, layers=layers: report_of(command(arguments, "run", job_settings(
            arguments, seed, METHODS["data_parallel"], workers=1) + ["model.layers=" + json.dumps(layers)]))
    for name, phases in PHASES.items():
        jobs[name] = lambda seed, phases=phases: phased(arguments, seed, phases)
    for rate in ("0.001", "0.002", "0.003"):
        for name, method in RATES.items():
            jobs["%s, rate %s" % (name, rate)] = lambda seed, method=method, rate=rate: report_of(command(
                arguments, "run", job_settings(arguments, seed, method) + [
                    "train.optimizer.adamw.learning_rate=" + rate]))
        for name, phases in BEGUN.items():
            jobs["%s, rate %s" % (name, rate)] = lambda seed, phases=phases, rate=rate: phased(
                arguments, seed, phases, ["train.optimizer.adamw.learning_rate=" + rate])
    jobs = {name: job for name, job in jobs.items() if any(part in name for part in arguments.only)}
    found = {name: [] for name in jobs}
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        asked = [(name, seed, pool.submit(job, seed)) for seed in seeds_of(arguments)
                 for name, job in jobs.items()]
        for name, seed, answer in asked:
            report = answer.result()
            found[name].append({"seed": seed, "loss": report["final"]["test_loss"], "steps": report["steps"],
                                "to": crossing(report["history"], arguments.to), "seconds": report["train_seconds"],
                                "megabytes": megabytes(report)})
            print("%-48s seed %d: %s" % (name, seed, json.dumps(found[name][-1])), flush=True)
            if arguments.results:
                with open(arguments.results, "w") as file:
                    json.dump(found, file)
    print("\n| %d steps, mean of %d seeds | loss | steps to %g | MB of a worker |\n|---|---:|---:|---:|" % (
        arguments.steps, arguments.seeds, arguments.to))
    for name, of in found.items():
        reached = [one["to"] for one in of if one["to"] is not None]
        steps = "%.0f" % mean(reached) if len(reached) == len(of) else "not reached"
        print("| %s | %.4f | %s | %.1f |" % (name, mean([one["loss"] for one in of]), steps,
                                             mean([one["megabytes"] for one in of])))


def megabytes(report):
    """Values that a worker pushed and pulled."""
    traffic = report["traffic"]
    return (traffic["push_payload_bytes"] + traffic["pull_payload_bytes"]) / len(traffic["by_worker"]) / 1e6


def simulated(arguments, settings, flags):
    return report_of(command(arguments, "simulate", settings) + [
        "--machines", str(arguments.workers + 2), "--latency", "1ms", "--bandwidth", arguments.link or "1Gbit",
        "--step-time", arguments.step_time] + flags)


def slow(arguments):
    """The real mathematics of methods on simulated machines, of which one is three times slower."""
    jobs = [(name, flags, seed) for seed in seeds_of(arguments) for name in SLOW_METHODS
            if any(part in name for part in arguments.only) for flags in ([], ["--slow-worker", "3"])
            if flags or name != SLOW_METHODS[0]]
    print("| simulated, --step-time %s | worker 0 | loss | seconds | MB of a worker |\n|---|---|---:|---:|---:|" %
          arguments.step_time, flush=True)
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        asked = [(name, flags, seed, pool.submit(simulated, arguments, job_settings(arguments, seed, METHODS[name]) +
                                                 ["train.evaluate_every=0"], flags)) for name, flags, seed in jobs]
        for name, flags, seed, answer in asked:
            report = answer.result()
            print("| %s, seed %d | %s | %.4f | %.1f | %.1f |" % (
                name, seed, "3 times slower" if flags else "as the others", report["final"]["test_loss"],
                report["train_seconds"], megabytes(report)), flush=True)


def link(arguments):
    """Seconds of a step by simulations without mathematics, and with --results those to the loss."""
    found = {}
    if arguments.results:
        with open(arguments.results) as file:
            found = json.load(file)
    print("| links of %s, %s a step | ms a step | s to %g |\n|---|---:|---:|" % (
        arguments.link, arguments.step_time, arguments.to))
    for name, method in METHODS.items():
        report = simulated(arguments, job_settings(arguments, 1, method) + ["train.evaluate_every=0"],
                           ["--stub-gradients"])
        seconds = report["train_seconds"] / report["steps"]
        reached = [one["to"] for one in found.get(name, [])]
        text = "-" if not reached else "not reached" if None in reached else "%.0f" % (mean(reached) * seconds)
        print("| %s | %.1f | %s |" % (name, seconds * 1e3, text), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--methods", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--link", default="", help="the bandwidth of each machine's link")
    parser.add_argument("--step-time", default="65ms", help="of the whole model, where machines are simulated")
    parser.add_argument("--only", nargs="+", default=[""], help="methods whose names have one of these in them")
    parser.add_argument("--at-once", type=int, default=1, help="jobs at a time")
    parser.add_argument("--results", help="a file that is written with --methods and read with --link")
    parser.add_argument("--to", type=float, default=1.95, help="the loss whose steps are told")
    parser.add_argument("--job", default=os.path.join(ROOT, "deploy/jobs/shakespeare_gpt.yaml"))
    parser.add_argument("--compile", action="store_true", help="the peer by torch.compile")
    parser.add_argument("--device", default="cpu", help="of Tessera's workers")
    parser.add_argument("--precision", default="f32", choices=["f32", "tf32", "bf16"])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--skip-peer", action="store_true")
    parser.add_argument("--binary", default=os.path.join(ROOT, "bazel-bin/deploy/cli/tessera"))
    arguments = parser.parse_args()
    arguments.seeds = arguments.seeds or (1 if arguments.methods or arguments.slow else 3)
    if arguments.methods or arguments.slow or arguments.link:
        return (methods if arguments.methods else slow if arguments.slow else link)(arguments)
    if not arguments.skip_peer and arguments.device == "cpu":
        print(peer.check("text.py", "--skip-peer"), flush=True)
    return alone(arguments)


if __name__ == "__main__":
    main()
