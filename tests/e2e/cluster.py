"""A language for tests with real processes: jobs, and the servers and workers that train them.

    cluster = Cluster(self, digits(lease="1s", epochs=100000), workers=3)
    cluster.await_step(20)
    cluster.workers[1].kill()
    cluster.await_status("worker 1 is lost", lambda status: lost(status) == 1)
    cluster.drain()
    report = cluster.finish()

Nothing here sleeps for a fixed time: everything waits for what is named, with a deadline, and fails with the
logs of all processes. Ports are free ones, files lie in TEST_TMPDIR, and no process outlives its test, even
if the test itself is killed.
"""
import contextlib
import glob
import json
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from status_call import status_of

# Tests run in the root of the tree, or of its copy for the test.
ROOT = os.getcwd()
TESSERA = os.path.join(ROOT, "deploy/cli/tessera")
SERVER = os.path.join(ROOT, "server/tessera-server")
WORKER = os.path.join(ROOT, "worker/tessera-worker")
JOBS = os.path.join(ROOT, "deploy/jobs")
DIGITS = os.path.join(ROOT, "deploy/data/optdigits")
DIGITS_ROWS = 1347

# For anything that is expected to happen soon; generous, as the machine may be busy.
SOON = 30
# A whole test, unless its class says otherwise.
TEST_MAX = 120
# All limits are so many times as long: programs that are built with a sanitizer take their time (.bazelrc).
PATIENCE = int(os.environ.get("TESSERA_TEST_PATIENCE", "1"))
# What a worker adds to its environment where it is absent: it starts itself anew for that, which is half the time of
# its start, and workers are half of all that tests start.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# What a timer may miss of a thread's start and end on a busy machine.
SLACK_SECONDS = 0.15
# Signals closer together are one.
ONE_SIGNAL_SECONDS = 0.3
# From the first worker's first step to the last one's, of processes that start together on a busy machine.
START_SECONDS = 2.5


def cpu_seconds():
    """Of this process and all its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Test(unittest.TestCase):
    """Bounds each test in time."""

    # Longer where tests wait for leases and timers, which a quick machine does not shorten.
    test_max = TEST_MAX

    def run(self, result=None):
        self.begun = time.monotonic(), cpu_seconds()
        return super().run(result)

    def setUp(self):
        def expired(number, frame):
            raise AssertionError("the test has not ended within %d s" % (self.test_max * PATIENCE))

        self.folder = tempfile.mkdtemp(prefix=self.id().split(".")[-1][:40] + "-", dir=os.environ.get("TEST_TMPDIR"))
        # Where `tessera run` keeps the logs of what failed.
        os.environ["TMPDIR"] = self.folder
        signal.signal(signal.SIGALRM, expired)
        signal.alarm(self.test_max * PATIENCE)

    def tearDown(self):
        signal.alarm(0)

    def doCleanups(self):
        """Ends all processes of a test, or of a case of it, and tells the log what it has cost."""
        done = super().doCleanups()
        ended = time.monotonic(), cpu_seconds()
        wall, cpu = (end - begin for begin, end in zip(self.begun, ended))
        # Most cases of those that have many are over at once.
        if wall > 0.1:
            print("%.1f s, %.1f s of CPU time ... " % (wall, cpu), end="", file=sys.stderr, flush=True)
        self.begun = ended
        return done

    @contextlib.contextmanager
    def case(self, name):
        """A subtest; its processes are gone when the next begins."""
        with self.subTest(name):
            try:
                yield
            finally:
                self.doCleanups()

    def path(self, name):
        return os.path.join(self.folder, name)

    def contains(self, text, *parts):
        for part in parts:
            self.assertIn(part, text)

    def check_phases(self, report, workers):
        """Every moment of training is one that each worker computed, pulled, pushed or waited in."""
        self.assertEqual([phase["worker"] for phase in report["phases"]], list(range(workers)))
        sums = []
        for phase in report["phases"]:
            parts = {key: value for key, value in phase.items() if key.endswith("_seconds")}
            self.assertTrue(all(value >= 0 for value in parts.values()), phase)
            sums.append(sum(parts.values()) - phase["evaluate_seconds"])
        # The first one starts the clock, and the others follow.
        delta = 0.05 * report["train_seconds"] + SLACK_SECONDS
        self.assertAlmostEqual(max(sums), report["train_seconds"], delta=delta)
        late = min(START_SECONDS, report["train_seconds"] / 2)
        self.assertGreater(min(sums), max(0, report["train_seconds"] - delta - late))


def digits(servers=2, workers=2, method=None, batch=32, rate=0.2, lease="10s", norm=True, units=32, seed=1,
           partition="global", normalize=None, evaluate_every=0, cluster=None, **train):
    """A job over the built-in digits, as the dictionary that its file holds."""
    if "steps" not in train and "epochs" not in train:
        train["epochs"] = 5
    layers = [{"linear": {"units": units}}] + (["batch_norm"] if norm else []) + ["relu", {"linear": {"units": 10}}]
    return {
        "name": "digits-test",
        "seed": seed,
        "data": {
            "format": "idx",
            "directory": DIGITS,
            "train": {"features": "train-images-idx3-ubyte.gz", "labels": "train-labels-idx1-ubyte.gz"},
            "test": {"features": "test-images-idx3-ubyte.gz", "labels": "test-labels-idx1-ubyte.gz"},
            "normalize": normalize or {"mean": 0.0192, "stddev": 0.0236},
            "partition": partition,
        },
        "model": {"input": [64], "layers": layers},
        "train": dict({"batch_size": batch, "evaluate_every": evaluate_every,
                       "optimizer": {"sgd": {"learning_rate": rate}}}, **train),
        "method": method or {"data_parallel": {}},
        "cluster": dict({"servers": servers, "workers": workers, "lease_timeout": lease}, **(cluster or {})),
    }


# So many epochs, or steps, that only a drain ends it.
ENDLESS = 1000000
# Workers of such a job pause so long before each step: while a test waits for leases and restarts, a job at full speed
# would take the cores that other tests want, and would show nothing more.
UNHURRIED_SECONDS = 0.01


def pause_of(job):
    """Seconds for which a worker of this job pauses before each step unless its test says otherwise."""
    return UNHURRIED_SECONDS if ENDLESS in (job["train"].get("epochs"), job["train"].get("steps")) else 0


def job_size(job):
    """Number of parameters of a job by digits()."""
    count, inputs = 0, job["model"]["input"][0]
    for layer in job["model"]["layers"]:
        if layer == "batch_norm":
            count += 2 * inputs
        elif isinstance(layer, dict) and "linear" in layer:
            units = layer["linear"]["units"]
            count += inputs * units + (units if layer["linear"].get("bias", True) else 0)
            inputs = units
    return count


def write_job(test, job, name="job.yaml"):
    """JSON is YAML."""
    path = test.path(name)
    with open(path, "w") as file:
        json.dump(job, file, indent=1)
    return path


def read_tensors(path):
    """name -> (shape, bytes), by the safetensors layout alone."""
    with open(path, "rb") as file:
        text = file.read()
    begin = 8 + struct.unpack("<Q", text[:8])[0]
    header = json.loads(text[8:begin])
    return {name: (spec["shape"], text[begin + spec["data_offsets"][0]:begin + spec["data_offsets"][1]])
            for name, spec in header.items() if name != "__metadata__"}


# Before a command: it is killed when this process ends. A preexec_fn would do it, too, but for that Python forks, and
# gRPC's handlers of a fork may end a process in which a connection was just closed.
WITH_PARENT = ["/usr/bin/setpriv", "--pdeathsig", "KILL", "--"]


class Process:
    """One process with its output in a file."""

    def __init__(self, test, name, command, env=None):
        self.test, self.name = test, name
        self.log = test.path(name.replace(" ", "-") + "-%d.log" % time.monotonic_ns())
        with open(self.log, "wb") as log:
            self.popen = subprocess.Popen(WITH_PARENT + list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          env=dict(os.environ, **(env or {})))
        test.addCleanup(self.end)

    @property
    def pid(self):
        return self.popen.pid

    @property
    def alive(self):
        return self.popen.poll() is None

    def output(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def signal(self, number):
        if self.alive:
            self.popen.send_signal(number)

    def signal_again(self, number):
        """One that is not taken for the one before it (common/base/termination.h)."""
        time.sleep(ONE_SIGNAL_SECONDS + 0.05)
        self.signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    def end(self):
        self.kill()
        self.popen.wait(SOON)

    def exit_code(self, within=SOON):
        """Waits for its end."""
        try:
            return self.popen.wait(within * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError("%s has not ended within %d s; its log:\n%s" % (self.name, within, self.output()))

    def expect_exit(self, code, within=SOON):
        got = self.exit_code(within)
        if got != code:
            raise AssertionError("%s ended with %d, want %d; its log:\n%s" % (self.name, got, code, self.output()))
        return self.output()

    def await_output(self, text, within=SOON):
        await_true("%s says \"%s\"" % (self.name, text), lambda: text in self.output() or not self.alive, within,
                   self.output)
        if text not in self.output():
            raise AssertionError("%s has not said \"%s\"; its log:\n%s" % (self.name, text, self.output()))


class Brake(threading.Thread):
    """Makes a process so many times slower than another, however busy the machine is: it moves for a part of the time
    of which the other one, while it computes, gets so many times more. In turns shorter than most steps."""

    MOVES = 0.003

    def __init__(self, process, reference, times=3):
        super().__init__(daemon=True)
        self.process, self.reference, self.times = process, reference, times
        self.released = threading.Event()
        self.start()

    def computed_and_queued(self):
        """Nanoseconds of the reference's main thread on a core, and for want of one."""
        try:
            with open("/proc/%d/schedstat" % self.reference.pid) as file:
                return [int(word) for word in file.read().split()[:2]]
        except OSError:  # It has ended.
            return [0, 0]

    def run(self):
        share, looked, before = 1.0, time.monotonic(), self.computed_and_queued()
        while not self.released.is_set() and self.process.alive:
            if time.monotonic() > looked + 0.25:
                looked, now = time.monotonic(), self.computed_and_queued()
                computed, queued = now[0] - before[0], now[1] - before[1]
                before = now
                if computed > 0:
                    share = max(0.1, computed / (computed + queued))
            self.process.freeze()
            time.sleep(self.MOVES * (self.times / share - 1))
            self.process.thaw()
            time.sleep(self.MOVES)

    def release(self):
        self.released.set()
        self.join()
        self.process.thaw()


def await_true(what, condition, within=SOON, explain=lambda: ""):
    end = time.monotonic() + within * PATIENCE
    while True:
        began = time.monotonic()
        if condition():
            return
        if time.monotonic() > end:
            raise AssertionError("not within %d s: %s\n%s" % (within, what, explain()))
        # What is asked for may be a program, which on a busy machine would take the core that the job wants.
        time.sleep(min(max(0.02, 2 * (time.monotonic() - began)), 0.3))


def tessera(*arguments, within=SOON, env=None):
    """Runs the command to its end; (exit code, stdout, what is wrong by stderr)."""
    done = subprocess.run(WITH_PARENT + [TESSERA] + list(arguments), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=within * PATIENCE, env=dict(os.environ, **(env or {})))
    return done.returncode, done.stdout, errors_in(done.stderr) if "run" in arguments[:1] else done.stderr


def errors_in(stderr):
    """What `tessera run` says on stderr, less what it waits for at the end, which depends on the machine's load."""
    return re.sub(r"^tessera: waiting for .* to end, another .* at most\n", "", stderr, flags=re.M)


def run_to_end(test, job, *arguments, within=TEST_MAX, env=None):
    """`tessera run` on a job (dictionary or path) that must end normally; the report."""
    path = job if isinstance(job, str) else write_job(test, job)
    report = test.path("report-%d.json" % time.monotonic_ns())
    code, out, error = tessera("run", path, "--report", report, "--quiet", *arguments, within=within, env=env)
    if code != 0:
        raise AssertionError("tessera run ended with %d\n%s%s" % (code, out, error))
    test.assertEqual(out, "")
    with open(report) as file:
        return json.load(file)


def members(status, state):
    return [m for m in status["members"] if m["state"] == state]


def lost(status):
    return int(status["members_lost"])


def memory(process):
    """The bytes of main memory that a process takes."""
    with open("/proc/%d/status" % process.pid) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) << 10


def open_files(pid):
    """What the process has open: paths, and names such as socket:[1234]."""
    found = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            found.add(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except FileNotFoundError:  # Closed meanwhile.
            pass
    return found


def children_of(pid):
    """pid -> command line, of the direct children."""
    children = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            # A program's name may be any bytes.
            with open(path, errors="replace") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            # While a process becomes another program, what is read here may be any bytes.
            with open(os.path.join(os.path.dirname(path), "cmdline"), errors="replace") as file:
                command = file.read().split("\0")
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            children[int(path.split("/")[2])] = command
    return children


def exists(pid):
    """The process is there, and no zombie."""
    try:
        with open("/proc/%d/stat" % pid, errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Cluster:
    """Daemons of one job, started one by one as a person would on several machines. Workers pause for `pause` seconds
    before each step: a job of few steps then lasts until a test has looked at it and killed somebody."""

    def __init__(self, test, job, servers=None, workers=None, start=True, pause=None):
        self.test, self.job = test, job
        self.pause = pause_of(job) if pause is None else pause
        self.path = write_job(test, job)
        listed = job["cluster"]["servers"]
        self.server_count = listed if isinstance(listed, int) else len(listed)
        self.named = not isinstance(listed, int)
        self.coordinator = listed[0] if self.named else None
        self.servers, self.workers = [], []
        self.report_path = test.path("report.json")
        if not start:
            return
        for rank in range(self.server_count if servers is None else servers):
            self.start_server(rank)
        for rank in range(job["cluster"]["workers"] if workers is None else workers):
            self.start_worker(rank)

    def start_server(self, rank, *extra, env=None, coordinator=None):
        command = [SERVER, "--job", self.path, "--rank", str(rank)]
        file = self.test.path("server-%d.address" % rank)
        if os.path.exists(file):
            os.remove(file)
        if not self.named:
            command += ["--listen", "127.0.0.1:0"]
            if rank > 0:
                command += ["--coordinator", coordinator or self.coordinator]
        if rank == 0:
            command += ["--report", self.report_path]
        server = Process(self.test, "server %d" % rank, command + ["--address-file", file] + list(extra), env)
        self.servers.append(server)
        await_true("server %d is up" % rank, lambda: os.path.exists(file) or not server.alive, explain=server.output)
        if not os.path.exists(file):
            raise AssertionError("server %d has ended\n%s" % (rank, server.output()))
        with open(file) as text:
            lines = text.read().splitlines() + ["", ""]
        server.address, server.metrics, server.page = lines[0], lines[1] or None, lines[2] or None
        if rank == 0:
            self.coordinator = server.address
        return server

    def start_worker(self, rank=None, *extra, path=None, env=None, coordinator=None):
        command = [WORKER, "--job", path or self.path]
        if not self.named:
            command += ["--coordinator", coordinator or self.coordinator]
        if rank is not None:
            command += ["--rank", str(rank)]
        if self.pause > 0:
            faults = "worker.step=sleep:%d;%s" % (1000 * self.pause, (env or {}).get("TESSERA_FAILPOINTS", ""))
            env = dict(env or {}, TESSERA_FAILPOINTS=faults)
        worker = Process(self.test, "worker %s" % ("any" if rank is None else rank), command + list(extra), env)
        self.workers.append(worker)
        return worker

    def logs(self):
        return "\n".join("--- %s%s\n%s" % (p.name, "" if p.alive else ", ended with %d" % p.popen.returncode,
                                             p.output()[-4000:]) for p in self.servers + self.workers)

    def status(self):
        return status_of(self.coordinator)

    def await_status(self, what, condition, within=SOON):
        """The first status that fulfils `condition`."""
        seen = [None]

        def fulfilled():
            seen[0] = self.status()
            return seen[0] is not None and condition(seen[0])

        await_true(what, fulfilled, within, lambda: "the last status: %s\n%s" % (seen[0], self.logs()))
        return seen[0]

    def await_step(self, step, within=SOON):
        return self.await_status("step %d" % step, lambda status: int(status["step"]) >= step, within)

    def await_further(self, steps=20):
        """Training goes on: so many more steps from here."""
        status = self.await_status("a status", lambda status: True)
        return self.await_step(int(status["step"]) + steps)

    def drain(self):
        """As `tessera drain` does, of whichever server is the coordinator."""
        if self.job.get("security", {}).get("token_file"):
            # Nobody here has a token of the operator's, but for server 0.
            return self.servers[0].signal(signal.SIGTERM)
        said = []
        for address in [self.coordinator] + [server.address for server in self.servers if server.alive]:
            code, _, error = tessera("drain", address, "--quiet", *self.client_flags())
            if code == 0:
                return None
            said.append(error)
        raise AssertionError("nobody drains the job: %s\n%s" % ("".join(said), self.logs()))

    def client_flags(self):
        files = self.job.get("security", {})
        return [flag for key in ("authority", "certificate", "private_key") if files.get(key)
                for flag in ("--" + key.replace("_", "-"), files[key])]

    def leave(self, server):
        """Asks one server, or worker, to end while the job goes on, and starts another in its place."""
        server.signal(signal.SIGTERM)
        server.expect_exit(0)
        kind, rank = server.name.split()
        return self.start_server(int(rank)) if kind == "server" else self.start_worker(int(rank))

    def finish(self, *ended_otherwise, within=SOON):
        """All processes but those named end with 0; the report."""
        for process in self.workers + self.servers:
            if process in ended_otherwise:
                continue
            code = process.exit_code(within)
            if code != 0:
                raise AssertionError("%s ended with %d, want 0\n%s" % (process.name, code, self.logs()))
        return self.report()

    def report(self):
        with open(self.report_path) as file:
            return json.load(file)


def train_beside_a_slow_worker(test, job, settled):
    """Two workers train well, the second of which is slow; four times as long as it takes until `settled` says yes of a
    status. The report."""
    # Pauses between steps would be most of the time, the slow worker's too.
    cluster = Cluster(test, job, pause=0)
    cluster.await_step(10)
    brake = Brake(cluster.workers[1], cluster.workers[0])
    trained = cluster.await_status("the slow one is known", settled)["train_seconds"]
    cluster.await_status("it has trained for longer", lambda status: status["train_seconds"] > 4 * trained, within=60)
    brake.release()
    cluster.drain()
    report = cluster.finish()
    test.assertEqual((report["outcome"], report["members"]["lost"], report["refused_pushes"]), ("stopped", 0, 0))
    test.assertGreater(report["final"]["test_accuracy"], 0.9)
    return report


def wait_share(report, rank):
    """The part of the training time in which a worker waited for others."""
    return report["phases"][rank]["wait_seconds"] / report["train_seconds"]


def free_ports(count):
    """Ports that were free a moment ago, below those that connections take by themselves."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        low = int(file.read().split()[0])
    sockets = []
    try:
        while len(sockets) < count:
            s = socket.socket()
            sockets.append(s)
            try:
                s.bind(("127.0.0.1", random.randrange(min(low, 32768) // 2, min(low, 32768))))
            except OSError:
                sockets.pop().close()
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
