"""Many faults in one job, drawn from a seed; and what must be true of it all the same.

    bazel test //tests/fault:chaos_test --test_output=all --test_timeout=3600 \\
        --test_arg=--faults=100 --test_arg=--seed=7 [--test_arg=--method=async_sgd]

Workers and servers (but server 0, which has the coordinator in it) are killed, or stopped and perhaps woken again,
sometimes two at once; whoever has ended is started again. In the end:

    the job ends by itself when it is asked to, and scores what a quiet one scores, within a margin
    no push that was acknowledged is lost or counted twice

The last is seen from outside: workers log every exchange that all servers have acknowledged, and the report says how
many pushes the servers have folded. The two must agree, but for the last push of a worker that was removed, which may
have been folded by some servers and not be acknowledged, or the reverse. What was acknowledged after the checkpoint
that the job went back to is void.

What is told of times: how long a fault went unnoticed, where it must be noticed, and then until all train on; of
workers that are stopped, and of two faults at once, the time since the fault, which has the stop in it.
"""
import argparse
import json
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import unittest

from cluster import ENDLESS, SOON, TESSERA, Cluster, Test, digits, lost, run_to_end

METHODS = {"local_sgd": {"local_sgd": {"local_steps": 4}},
           "data_parallel": {"data_parallel": {}},
           "async_sgd": {"async_sgd": {}},
           "ssp": {"ssp": {"bound": 2, "local_steps": 2}},
           "ist": {"ist": {"local_steps": 4}}}
# A checkpoint is of the same exchange of all members, so that it is known which acknowledged pushes it is without.
LOCKSTEP = ("local_sgd", "data_parallel", "ist")
WORKERS, SERVERS = 4, 3
# A quiet job's accuracy less that of the job with faults.
MARGIN = 0.03
QUIET_EPOCHS = 30
ARGUMENTS = None


class Watch:
    """What the job says of itself, as it says it."""

    def __init__(self, test, address):
        self.process = subprocess.Popen([TESSERA, "status", address, "--watch", "--json"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        test.addCleanup(self.process.kill)
        self.changed = threading.Condition()
        self.latest = None
        self.count = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.latest = json.loads(line)
                self.count += 1
                self.changed.notify_all()

    def until(self, what, condition, explain, within=SOON):
        """The first status from now on that fulfils the condition."""
        end = time.monotonic() + within
        with self.changed:
            known = self.count
            while self.count == known or not condition(self.latest):
                if not self.changed.wait(end - time.monotonic()):
                    raise AssertionError("not within %d s: %s\n%s\n%s" % (within, what, self.latest, explain()))
            return self.latest


def live(status):
    return [m for m in status["members"] if m["state"] in ("training", "evaluating")]


def rollbacks(status):
    return int(status.get("checkpoint", {}).get("rollbacks", 0))


def stamp(line):
    """A log line's time of day, in seconds."""
    hours, minutes, seconds = re.match(r"[DIWE]\d{4} (\d\d):(\d\d):(\d\d\.\d+)", line).groups()
    return 3600 * int(hours) + 60 * int(minutes) + float(seconds)


class Chaos(Test):
    def setUp(self):
        super().setUp()
        signal.alarm(0 if ARGUMENTS.faults > 10 else 600)
        self.dice = random.Random(ARGUMENTS.seed)
        self.detections, self.recoveries = {}, {}
        self.retired = []  # processes that were killed or have ended on the way

    def job(self, **train):
        job = digits(servers=SERVERS, workers=WORKERS, batch=16, rate=0.1 if ARGUMENTS.method != "ssp" else 0.05,
                     method=METHODS[ARGUMENTS.method], lease="%dms" % (1000 * ARGUMENTS.lease), **train)
        return job

    def start_worker(self):
        return self.cluster.start_worker(None, "--log-level", "debug")

    def begin(self):
        job = dict(self.job(epochs=ENDLESS), checkpoint={"directory": self.path("checkpoints"), "every_steps": 200})
        self.cluster = Cluster(self, job, workers=0)
        for _ in range(WORKERS):
            self.start_worker()
        self.watch = Watch(self, self.cluster.coordinator)
        self.watch.until("a checkpoint", lambda s: int(s.get("checkpoint_step", 0)) > 0, self.cluster.logs)

    def retire(self, processes, process):
        processes.remove(process)
        self.retired.append(process)

    # --- faults: each returns what to do once the job has noticed ---

    def strike_worker(self, victim):
        how = self.dice.choice(("kill", "stop", "stop for a while"))
        print("  worker pid=%d %s" % (victim.pid, how), flush=True)
        if how == "kill":
            victim.kill()
            self.retire(self.cluster.workers, victim)
            self.start_worker()
            return how
        victim.freeze()
        # Some wake up before their lease is over, some after.
        pause = self.dice.uniform(0, 2.5 * ARGUMENTS.lease) if how == "stop for a while" else 3 * ARGUMENTS.lease
        threading.Timer(pause, victim.thaw).start()
        time.sleep(min(pause, 1.5 * ARGUMENTS.lease))
        if pause > 0.7 * ARGUMENTS.lease:
            # It may be removed: then it ends by itself, and another one is there for it.
            try:
                victim.popen.wait(3 * ARGUMENTS.lease + 3)
                self.retire(self.cluster.workers, victim)
                self.start_worker()
            except subprocess.TimeoutExpired:
                pass
        return how

    def strike_server(self, rank):
        victim = next(s for s in self.cluster.servers if s.name == "server %d" % rank)
        how = self.dice.choice(("kill", "kill", "stop for a while", "stop") if ARGUMENTS.method in LOCKSTEP else
                               ("stop for a while",))
        print("  server %d %s" % (rank, how), flush=True)
        if how == "stop for a while":
            victim.freeze()
            time.sleep(self.dice.uniform(0, 0.4 * ARGUMENTS.lease))
            victim.thaw()
            return how
        before = rollbacks(self.watch.latest)
        begin = time.monotonic()
        (victim.kill if how == "kill" else victim.freeze)()
        self.watch.until("server %d is waited for" % rank, lambda s: "server %d" % rank in s.get("waiting_for", []) and
                         s["state"] == "waiting", self.cluster.logs)
        self.detections.setdefault("server " + how, []).append(time.monotonic() - begin)
        if how == "stop":
            victim.thaw()
            try:
                # It may notice first that it has not heard of the coordinator for a lease.
                victim.popen.wait(ARGUMENTS.lease)
            except subprocess.TimeoutExpired:
                self.await_recovery("server woken late", begin)
                return how
        self.retire(self.cluster.servers, victim)
        begin = time.monotonic()
        self.cluster.start_server(rank)
        # Those that are refused as members of before the checkpoint join again by themselves.
        self.watch.until("the job went back", lambda s: rollbacks(s) > before, self.cluster.logs)
        self.await_recovery("server " + how, begin)
        return how

    def await_recovery(self, what, begin=None):
        """All are there, and train."""
        for worker in [w for w in self.cluster.workers if not w.alive]:
            self.retire(self.cluster.workers, worker)
            self.start_worker()
        there = self.watch.until("%d train after %s" % (WORKERS, what), lambda s: len(live(s)) == WORKERS and
                                 s["state"] == "training", self.cluster.logs, within=60)
        step = max(int(m["progress"].get("step", 0)) for m in live(there))
        self.watch.until("training goes on after %s" % what, lambda s: live(s) and min(
            int(m["progress"].get("step", 0)) for m in live(s)) > step, self.cluster.logs, within=60)
        if begin is not None:
            self.recoveries.setdefault(what, []).append(time.monotonic() - begin)

    def strike(self):
        """One fault, or two at once; how many."""
        if self.dice.random() < 0.35:
            twin = self.dice.random() < 0.3
            if twin:
                begin = time.monotonic()
                self.strike_worker(self.dice.choice(self.cluster.workers))
            self.strike_server(self.dice.randrange(1, SERVERS))
            self.await_recovery("twin" if twin else "server", begin if twin else None)
            return 2 if twin else 1
        count = 2 if self.dice.random() < 0.25 else 1
        gone = lost(self.watch.latest)
        begin = time.monotonic()
        kinds = [self.strike_worker(victim) for victim in self.dice.sample(self.cluster.workers, count)]
        if kinds == ["kill"]:
            self.watch.until("it is noticed", lambda s: lost(s) > gone, self.cluster.logs)
            self.detections.setdefault("worker kill", []).append(time.monotonic() - begin)
            begin = time.monotonic()
        self.await_recovery("worker " + kinds[0] if count == 1 else "two workers", begin)
        return count

    # --- what must be true in the end ---

    def acknowledged(self):
        """How many pushes each member made that all servers acknowledged and that are in the timeline."""
        back = []  # (when, exchange) of each return to a checkpoint
        with open(self.cluster.servers[0].log) as file:
            for line in file:
                found = re.search(r"control: going back step=\d+ exchange=(\d+)", line)
                if found:
                    back.append((stamp(line), int(found.group(1))))
        members = {}
        for worker in [p for p in self.cluster.workers + self.retired if p.name.startswith("worker")]:
            member = None
            with open(worker.log) as file:
                for line in file:
                    joined = re.search(r"worker: joined rank=\d+ member=(\d+)", line)
                    if joined:
                        member = int(joined.group(1))
                        members.setdefault(member, [])
                    done = re.search(r"worker: acknowledged exchange=(\d+)", line)
                    if done:
                        when, exchange = stamp(line), int(done.group(1))
                        if not any(when < then and exchange > last for then, last in back):
                            members[member].append(exchange)
        for member, exchanges in members.items():
            self.assertEqual(len(exchanges), len(set(exchanges)), "member %d" % member)
        return {member: len(exchanges) for member, exchanges in members.items()}

    def check_pushes(self, report):
        acknowledged = sum(self.acknowledged().values())
        folded = sum(report["staleness"]["histogram"])
        # Members that were removed or went back with the job: the last push of each is open, on each server.
        with open(self.cluster.servers[0].log) as file:
            text = file.read()
        removed = text.count("control: worker removed") + text.count("control: going back") * WORKERS
        print("pushes: %d acknowledged by %d servers, %d folded; %d members removed or gone back, so that at most %d "
              "are open" % (acknowledged, SERVERS, folded, removed, SERVERS * removed))
        self.assertLessEqual(abs(folded - SERVERS * acknowledged), SERVERS * removed)
        return acknowledged, folded

    def test_a_job_with_many_faults_ends_as_a_quiet_one(self):
        quiet = run_to_end(self, self.job(epochs=QUIET_EPOCHS))["final"]["test_accuracy"]
        self.begin()
        done = 0
        while done < ARGUMENTS.faults:
            print("fault %d, step %s" % (done + 1, self.watch.latest["step"]), flush=True)
            done += self.strike()
            time.sleep(self.dice.uniform(0, 0.5))
        step = int(self.watch.latest["step"])
        enough = step + QUIET_EPOCHS * 1347 // (16 * WORKERS) // 2
        self.watch.until("it has trained on", lambda s: int(s["step"]) > enough, self.cluster.logs, within=300)
        self.cluster.drain()
        report = self.cluster.finish()
        accuracy = report["final"]["test_accuracy"]
        print("faults %d, seed %d, method %s: accuracy %.4f, quiet %.4f; members joined %d, lost %d; rollbacks %d" % (
            done, ARGUMENTS.seed, ARGUMENTS.method, accuracy, quiet, report["members"]["joined"],
            report["members"]["lost"], report["checkpoint"]["rollbacks"]))
        for what, times in (("noticed", self.detections), ("trained on", self.recoveries)):
            for kind, seconds in sorted(times.items()):
                print("%-24s %s after: median %.2f s, max %.2f s, %d times" % (
                    kind, what, statistics.median(seconds), max(seconds), len(seconds)))
        self.assertEqual(report["outcome"], "finished")
        self.assertGreaterEqual(accuracy, quiet - MARGIN)
        self.check_pushes(report)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-v", action="store_true")
    parser.add_argument("--faults", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    # Of seconds. On a machine that does much else a short one is lost without any fault.
    parser.add_argument("--lease", type=float, default=4.0)
    parser.add_argument("--method", choices=sorted(METHODS), default="local_sgd")
    ARGUMENTS = parser.parse_args()
    unittest.main(argv=sys.argv[:1] + ["-v"])
