#!/usr/bin/python3
"""Methods on a slow network: every worker behind a link of a given rate, in a network namespace of its own.

    bench/network/limited.py FOLDER --rate 200mbit [--workers 2 4 8] [--methods ist local_sgd] [--seconds-max 300]

FOLDER holds the speech data (deploy/fetch_data.sh --from DIR speech). The servers are in this script's namespace, at a
switch to which each worker has a link (a veth pair) that a token bucket limits in each direction. What the links let
through is measured first, with plain sockets over all of them at once. Then real servers and workers train, and the
table is that of bench/training/subnets.py: seconds of training, evaluations left out of them.

Run it as root: it makes namespaces. They have no names and end with the script, and so do the processes in them.
"""
import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))
import runs

CLONE_NEWNET = 0x40000000
HOST = "10.77.0.1"
SERVERS = ["%s:7000" % HOST, "%s:7001" % HOST]
PROBE_SECONDS = 2.0
# The first part of a transfer, which the bucket's tokens and full buffers make look fast.
PROBE_WARM_SECONDS = 0.5
# What the token bucket lets through at once, and how long a packet may wait for it.
BURST_BYTES = 64 << 10
QUEUE_SECONDS = 0.05
# A process that is told to end, or whose job has ended.
END_SECONDS_MAX = 120


def checked(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))


class Network:
    """This process in a namespace with a switch, and `count` more with a limited link to it each."""

    def __init__(self, count, rate):
        checked(runs.libc.unshare(CLONE_NEWNET), "a network namespace")
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.spaces = []
        self.command("ip link set lo up")
        self.command("ip link add switch type bridge")
        self.command("ip addr add %s/16 dev switch" % HOST)
        self.command("ip link set switch up")
        for rank in range(count):
            with self.inside(self.home):
                checked(runs.libc.unshare(CLONE_NEWNET), "a network namespace")
                self.spaces.append(os.open("/proc/self/ns/net", os.O_RDONLY))
            self.command("ip link add port%d type veth peer name uplink netns /proc/%d/fd/%d" % (
                rank, os.getpid(), self.spaces[rank]))
            self.command("ip link set port%d master switch up" % rank)
            self.limit("port%d" % rank, rate)
            with self.inside(self.spaces[rank]):
                self.command("ip link set lo up")
                self.command("ip addr add %s/16 dev uplink" % self.address(rank))
                self.command("ip link set uplink up")
                self.limit("uplink", rate)

    @staticmethod
    def address(link):
        return "10.77.1.%d" % (link + 1)

    @contextlib.contextmanager
    def inside(self, space):
        """What is started, or which socket is opened, belongs to that namespace and stays there."""
        checked(runs.libc.setns(space, CLONE_NEWNET), "setns")
        try:
            yield
        finally:
            checked(runs.libc.setns(self.home, CLONE_NEWNET), "setns")

    def command(self, text):
        done = subprocess.run(text.split(), capture_output=True, text=True)
        if done.returncode != 0:
            raise OSError("%s: %s" % (text, done.stderr.strip()))

    def limit(self, device, rate):
        """Of what it sends; the other end's limits what it receives."""
        self.command("tc qdisc add dev %s root tbf rate %s burst %db latency %dms" % (
            device, rate, BURST_BYTES, 1000 * QUEUE_SECONDS))

    def probe(self, upwards):
        """Mbit/s that each link carries while all are busy."""
        ends = []
        with socket.create_server((HOST, 0)) as listener:
            for space in self.spaces:
                with self.inside(space):
                    worker = socket.socket()
                worker.connect(listener.getsockname())
                server = listener.accept()[0]
                ends.append((worker, server) if upwards else (server, worker))
        rates = [0.0] * len(ends)
        threads = [threading.Thread(target=send, args=(sender,)) for sender, _ in ends]
        threads += [threading.Thread(target=receive, args=(receiver, rates, i))
                    for i, (_, receiver) in enumerate(ends)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return rates


def send(connection):
    block = bytes(1 << 16)
    with connection, contextlib.suppress(OSError):  # the receiver has seen enough
        while True:
            connection.sendall(block)


def receive(connection, rates, i):
    begin, count = time.monotonic() + PROBE_WARM_SECONDS, 0
    connection.settimeout(PROBE_SECONDS)
    with connection, contextlib.suppress(socket.timeout):
        while time.monotonic() < begin + PROBE_SECONDS:
            received = len(connection.recv(1 << 16))
            count += received if time.monotonic() > begin else 0
        rates[i] = 8e-6 * count / PROBE_SECONDS


def megabits(rate):
    """Of a rate as tc reads it, or None."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", rate)
    return float(match[1]) * {"k": 1e-3, "m": 1.0, "g": 1e3}[match[2]] if match else None


def check_links(network, rate):
    limit = megabits(rate)
    # What a bucket's burst and its queue had held when the measurement began may come on top.
    held = 8e-6 * BURST_BYTES + limit * QUEUE_SECONDS
    for name, upwards in (("up", True), ("down", False)):
        rates = network.probe(upwards)
        print("links of %s, all %d at once, plain sockets: %s %.1f to %.1f Mbit/s" % (
            rate, len(rates), name, min(rates), max(rates)), flush=True)
        if max(rates) > 1.05 * limit + held / PROBE_SECONDS:
            sys.exit("limited.py: a link of %s carries %.1f Mbit/s; its limit does not hold" % (rate, max(rates)))
        if min(rates) < 0.85 * limit:
            print("  less than the links would carry: the machine is too busy, or too slow for so many", flush=True)


class Cluster:
    """The daemons of one job."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []

    def start(self, name, command):
        with open(os.path.join(self.folder, name + ".log"), "wb") as log:
            # A session of its own: Ctrl-C is for the script, which ends them.
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                   start_new_session=True, preexec_fn=runs.die_with_parent))
        return self.processes[-1]

    def kill(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def logs(self):
        texts = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), errors="replace") as file:
                    texts.append("--- %s\n%s" % (name, "".join(file.readlines()[-8:])))
        return "\n".join(texts)


def program(options, name, folder):
    """Beside the command, or where the build puts it."""
    here = os.path.dirname(os.path.abspath(options.tessera))
    for path in (os.path.join(here, name), os.path.join(here, "../..", folder, name)):
        if os.access(path, os.X_OK):
            return path
    sys.exit("limited.py: %s is not beside %s; build it: bazel build //%s:%s" % (name, options.tessera, folder, name))


def ended(cluster, coordinator, seconds):
    """Waits for server 0; False where it trains on. A process that fails ends the job, and the script."""
    end = time.monotonic() + seconds
    while coordinator.poll() is None:
        failed = [process for process in cluster.processes if process.poll() not in (None, 0)]
        if failed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                coordinator.wait(5)
            break
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    if coordinator.poll() != 0:
        sys.exit("limited.py: the job failed; last lines:\n" + cluster.logs())
    return True


def run(options, network, job, flags, workers, server_links=()):
    """The report of one job, whose --set flags leave the servers out. They are in this script's namespace, or one
    behind each of these links; worker k is behind link k."""
    spaces = [network.spaces[link] for link in server_links] or [network.home] * len(SERVERS)
    servers = ["%s:7000" % network.address(link) for link in server_links] or SERVERS
    flags = flags + ["--set", "cluster.servers=[%s]" % ", ".join(servers), "--set", "security.insecure=true"]
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        cluster = Cluster(folder)
        try:
            for rank, space in enumerate(spaces):
                with network.inside(space):
                    cluster.start("server-%d" % rank, [program(options, "tessera-server", "server"), "--job", job,
                                                       "--rank", str(rank)] + flags +
                                  (["--report", report] if rank == 0 else []))
            calls_workers = any("layer_separation" in flag for flag in flags)
            for rank in range(workers):
                listen = ["--listen", "%s:7100" % network.address(rank)] if calls_workers else []
                with network.inside(network.spaces[rank]):
                    cluster.start("worker-%d" % rank, [program(options, "tessera-worker", "worker"), "--job", job,
                                                       "--rank", str(rank)] + listen + flags)
            coordinator = cluster.processes[0]
            if not ended(cluster, coordinator, options.seconds_max):
                coordinator.send_signal(signal.SIGTERM)
                if not ended(cluster, coordinator, END_SECONDS_MAX):
                    sys.exit("limited.py: the job does not end; last lines:\n" + cluster.logs())
            with open(report) as file:
                result = json.load(file)
            if result["members"]["lost"] > 0:
                sys.exit("limited.py: the job lost a worker; last lines:\n" + cluster.logs())
            return result
        finally:
            cluster.kill()


def network_of(options, workers):
    """The limited network, measured; exits where it cannot be."""
    if os.geteuid() != 0:
        print("%s: network namespaces and limits want root; run it with sudo" % os.path.basename(sys.argv[0]),
              file=sys.stderr)
        sys.exit(2)
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # ip and tc
    # An end by SIGTERM cleans up like any other.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        network = Network(workers, options.rate)
    except OSError as error:
        print("%s: the limited network cannot be made here: %s" % (os.path.basename(sys.argv[0]), error),
              file=sys.stderr)
        sys.exit(2)
    check_links(network, options.rate)
    return network


def main():
    parser = runs.parser_of(__doc__, list(runs.METHODS))
    parser.add_argument("--rate", default="200mbit", help="of each worker's link, each way, as tc writes it")
    options = parser.parse_args()
    if megabits(options.rate) is None:
        parser.error('--rate: got "%s", want a number with kbit, mbit or gbit' % options.rate)
    try:
        network = network_of(options, max(options.workers))
        found = runs.measure(options, lambda method, workers, seed: {
            method: run(options, network, options.job, runs.overrides(options, method, workers, seed), workers)})
    except KeyboardInterrupt:
        return 130
    print("\n%s each way per worker\n\n%s" % (options.rate, runs.table(options, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
