"""A job that is struck again and again: its processes, what it says of itself, what must be true of it in the end."""
import json
import random
import re
import signal
import statistics
import subprocess
import threading
import time

from cluster import ENDLESS, SOON, TESSERA, Cluster, Test, digits, lost, run_to_end
from evidence import Evidence

METHODS = {"local_sgd": {"local_sgd": {"local_steps": 4}},
           "overlapped": {"local_sgd": {"local_steps": 4, "overlap": True}},
           "fragments": {"diloco": {"local_steps": 8, "fragments": 4, "delay": 1, "alpha": 0.5}},
           "data_parallel": {"data_parallel": {}},
           "async_sgd": {"async_sgd": {}},
           "ssp": {"ssp": {"bound": 2, "local_steps": 2}},
           "ist": {"ist": {"local_steps": 4}}}
# A checkpoint is of the same exchange of all members, so that it is known which acknowledged pushes it is without.
LOCKSTEP = ("local_sgd", "overlapped", "fragments", "data_parallel", "ist")
# A job that goes back to a checkpoint ends with the bits of one that does not: not where exchanges overlap, as all wait
# for the checkpoint's.
REPEATABLE = ("local_sgd", "data_parallel", "ist")
WORKERS = 4
# A quiet job's accuracy less that of the job with faults.
MARGIN = 0.03
QUIET_EPOCHS = 30
ROWS = 1347


class Watch:
    """What the job says of itself, as it says it: to whoever asks its coordinator, wherever that is by now."""

    # Without a word for so long, in seconds, the coordinator is looked for anew.
    SILENCE_MAX = 3

    def __init__(self, test, find):
        self.find = find
        self.changed = threading.Condition()
        self.latest = None
        self.count = 0
        self.process = None
        self.heard = time.monotonic()
        self.over = False
        test.addCleanup(self.end)
        threading.Thread(target=self.read, daemon=True).start()

    def end(self):
        self.over = True
        self.look_anew()

    def look_anew(self):
        self.heard = time.monotonic()
        if self.process is not None:
            self.process.kill()

    def read(self):
        while not self.over:
            address = self.find()
            if address is None:
                time.sleep(0.1)
                continue
            self.process = subprocess.Popen([TESSERA, "status", address, "--watch", "--json"], stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, text=True)
            with self.process as process:
                for line in process.stdout:
                    status = json.loads(line)
                    if not status["job"]:
                        break  # It is the coordinator no more.
                    with self.changed:
                        self.latest = status
                        self.heard = time.monotonic()
                        self.count += 1
                        self.changed.notify_all()
                process.kill()
            time.sleep(0.2)

    def until(self, what, condition, explain, within=SOON, since=0.0):
        """The first status from now on, made later than `since`, that fulfils the condition."""
        end = time.monotonic() + within
        with self.changed:
            known = self.count
            while self.count == known or int(self.latest["clock_ns"]) < since * 1e9 or not condition(self.latest):
                if time.monotonic() > end:
                    raise AssertionError("not within %d s: %s\n%s\n%s" % (within, what, self.latest, explain()))
                if not self.changed.wait(0.5) and time.monotonic() - self.heard > self.SILENCE_MAX:
                    self.look_anew()
            return self.latest


def live(status):
    return [m for m in status["members"] if m["state"] in ("training", "evaluating")]


def rollbacks(status):
    return int(status.get("checkpoint", {}).get("rollbacks", 0))


class ChaosJob(Test):
    arguments = None

    def setUp(self):
        super().setUp()
        signal.alarm(0 if self.arguments.faults > 10 else 600)
        self.dice = random.Random(self.arguments.seed)
        self.detections, self.recoveries = {}, {}
        self.retired = []  # processes that were killed or have ended on the way
        self.evidence = Evidence()

    # --- the job ---

    def job(self, servers, **train):
        method = self.arguments.method
        return digits(servers=servers, workers=WORKERS, batch=16, rate=0.1 if method != "ssp" else 0.05,
                      method=METHODS[method], lease="%dms" % (1000 * self.arguments.lease), **train)

    def make_cluster(self, job):
        return Cluster(self, job, workers=0)

    def find_coordinator(self):
        return self.cluster.coordinator

    def start_worker(self):
        self.evidence.add(self.cluster.start_worker(None, "--log-level", "debug"))

    def start_server(self, rank):
        server = self.cluster.start_server(rank)
        self.evidence.add(server)
        return server

    def begin(self):
        job = dict(self.job(self.arguments.servers, epochs=ENDLESS),
                   checkpoint={"directory": self.path("checkpoints"), "every_steps": 200})
        self.cluster = self.make_cluster(job)
        for server in self.cluster.servers:
            self.evidence.add(server)
        for _ in range(WORKERS):
            self.start_worker()
        self.watch = Watch(self, self.find_coordinator)
        self.watch.until("a checkpoint", lambda s: int(s.get("checkpoint_step", 0)) > 0, self.logs)

    def retire(self, processes, process):
        processes.remove(process)
        self.retired.append(process)

    def server(self, rank):
        return next(s for s in self.cluster.servers if s.name == "server %d" % rank)

    def logs(self):
        """The last lines of all but what is usual."""
        usual = re.compile("worker: acknowledged|checkpoint: whole")
        tails = []
        for log in self.evidence.logs[-4 * WORKERS:]:
            lines = [line for line in log.process.output().splitlines() if not usual.search(line)]
            tails.append("--- %s pid=%d\n%s" % (log.process.name, log.process.pid, "\n".join(lines[-60:])))
        return "\n".join(tails)

    # --- faults of workers ---

    def strike_worker(self, victim):
        lease = self.arguments.lease
        how = self.dice.choice(("kill", "stop", "stop for a while"))
        print("  worker pid=%d %s" % (victim.pid, how), flush=True)
        if how == "kill":
            victim.kill()
            self.retire(self.cluster.workers, victim)
            self.start_worker()
            return how
        victim.freeze()
        # Some wake up before their lease is over, some after.
        pause = self.dice.uniform(0, 2.5 * lease) if how == "stop for a while" else 3 * lease
        threading.Timer(pause, victim.thaw).start()
        time.sleep(min(pause, 1.5 * lease))
        if pause > 0.7 * lease:
            # It may be removed: then it ends by itself, and another one is there for it.
            try:
                victim.popen.wait(3 * lease + 3)
                self.retire(self.cluster.workers, victim)
                self.start_worker()
            except subprocess.TimeoutExpired:
                pass
        return how

    def strike_workers(self):
        """One, or two at once; how many."""
        count = 2 if self.dice.random() < 0.25 else 1
        gone = lost(self.watch.latest)
        begin = time.monotonic()
        kinds = [self.strike_worker(victim) for victim in self.dice.sample(self.cluster.workers, count)]
        if kinds == ["kill"]:
            self.watch.until("it is noticed", lambda s: lost(s) > gone, self.logs)
            self.note(self.detections, "worker kill", time.monotonic() - begin)
            begin = time.monotonic()
        self.await_recovery("worker " + kinds[0] if count == 1 else "two workers", begin)
        return count

    def await_recovery(self, what, begin=None):
        """All are there, and train."""
        for worker in [w for w in self.cluster.workers if not w.alive]:
            self.retire(self.cluster.workers, worker)
            self.start_worker()
        there = self.watch.until("%d train after %s" % (WORKERS, what), lambda s: len(live(s)) == WORKERS and
                                 s["state"] == "training", self.logs, within=60)
        step = max(int(m["progress"].get("step", 0)) for m in live(there))
        self.watch.until("training goes on after %s" % what, lambda s: live(s) and min(
            int(m["progress"].get("step", 0)) for m in live(s)) > step, self.logs, within=60)
        if begin is not None:
            self.note(self.recoveries, what, time.monotonic() - begin)

    def strike(self):
        """One fault, or several at once; how many. The job has recovered when it returns."""
        raise NotImplementedError

    # --- what is told ---

    @staticmethod
    def note(times, kind, seconds):
        times.setdefault(kind, []).append(seconds)

    @staticmethod
    def tell(what, times):
        for kind, seconds in sorted(times.items()):
            print("%-34s %s after: median %.2f s, max %.2f s, %d times" % (
                kind, what, statistics.median(seconds), max(seconds), len(seconds)))

    # --- what must be true in the end ---

    def check_pushes(self, report):
        """Every push that was acknowledged counts once on every server."""
        exchanges = self.evidence.exchanges()
        for member, made in exchanges.items():
            self.assertEqual(len(made), len(set(made)), "member %d" % member)
        acknowledged = sum(len(made) for made in exchanges.values())
        folded = sum(report["staleness"]["histogram"])
        servers = self.arguments.servers
        # Members that were removed or went back with the job: the last push of each is open, on each server.
        removed = (len(self.evidence.servers_said("control: worker removed")) +
                   len(self.evidence.servers_said("control: going back")) * WORKERS)
        print("pushes: %d acknowledged by %d servers, %d folded; %d members removed or gone back, so that at most %d "
              "are open" % (acknowledged, servers, folded, removed, servers * removed))
        self.assertLessEqual(abs(folded - servers * acknowledged), servers * removed)

    def check_end(self, report):
        """The job scores what a quiet one scores."""
        quiet = run_to_end(self, self.job(1, epochs=QUIET_EPOCHS))["final"]["test_accuracy"]
        accuracy = report["final"]["test_accuracy"]
        print("accuracy %.4f, quiet %.4f" % (accuracy, quiet))
        self.assertGreaterEqual(accuracy, quiet - MARGIN)

    def test_a_job_with_many_faults_ends_as_a_quiet_one(self):
        self.begin()
        done = 0
        while done < self.arguments.faults:
            print("fault %d, step %s" % (done + 1, self.watch.latest["step"]), flush=True)
            done += self.strike()
            time.sleep(self.dice.uniform(0, 0.5))
        step = int(self.watch.latest["step"])
        enough = step + QUIET_EPOCHS * ROWS // (16 * WORKERS) // 2
        self.watch.until("it has trained on", lambda s: int(s["step"]) > enough, self.logs, within=300)
        self.cluster.drain()
        report = self.cluster.finish()
        print("faults %d, seed %d, method %s, step %d: members joined %d, lost %d; rollbacks %d" % (
            done, self.arguments.seed, self.arguments.method, report["steps"], report["members"]["joined"],
            report["members"]["lost"], report["checkpoint"]["rollbacks"]))
        self.tell("noticed", self.detections)
        self.tell("trained on", self.recoveries)
        self.assertEqual(report["outcome"], "stopped")
        self.check_pushes(report)
        self.check_end(report)
