#!/usr/bin/python3
"""Exchanges over a way that takes long: what a delay costs with and without a limit on memory.

    bench/network/delayed.py [--delays 0 5 20 100 200] [--mib 64] [--limits none 130MiB 1200MiB] [--steps 32]
                             [--first 8] [--servers 1] [--tls]

A worker exchanges a model of so many MiB with a server, or several that share it, through a relay for each that
holds every byte for half of the delay, in milliseconds there and back, for each of the limits that
cluster.memory_limit has ("none": it has none). Two jobs do so: one has the first steps alone, in which windows grow,
and the other one as many and `--steps` more, whose mean is the difference. After them a plain socket, with --tls one of
OpenSSL, goes through such a relay: it sends as many bytes and is sent as many, the first time uncounted. The table has
the time of the plain exchange as a share of the job's, which is what the job has of the way's rate, MB/s both ways
together, the same of the first steps, and the largest peak of a process as a share of its limit.

The relay is a process of its own, which needs a core of its own to carry much; what it does with no delay is the first
row.
"""
import argparse
import contextlib
import json
import multiprocessing
import os
import queue
import random
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))
import limited
import runs

PIECE = 1 << 18
PLAIN_REPEATS = 3
JOB_SECONDS_MAX = 600


class Link:
    """One direction of a link that carries `rate` bytes per second; 0: at once."""

    def __init__(self, rate):
        self.rate, self.lock, self.free_at = rate, threading.Lock(), 0.0

    def carried(self, size):
        """When the last of so many bytes that come now has been carried."""
        now = time.monotonic()
        if self.rate == 0:
            return now
        with self.lock:
            self.free_at = max(now, self.free_at) + size / self.rate
            return self.free_at


class Relay:
    """Passes connections on to `to`; every byte takes `latency` seconds, also those of the first round trip. All
    connections share a link of `rate` bytes per second each way."""

    def __init__(self, listener, to, latency, rate=0):
        self.listener, self.to, self.latency = listener, to, latency
        self.piece = PIECE if rate == 0 else int(min(PIECE, max(1500, rate / 100)))
        self.links = Link(rate), Link(rate)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client = self.listener.accept()[0]
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client):
        try:
            server = socket.create_connection(self.to)
        except OSError:
            client.close()
            return
        for source, sink, link in ((client, server, self.links[0]), (server, client, self.links[1])):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            on_their_way = queue.Queue()
            threading.Thread(target=self.take, args=(source, link, on_their_way), daemon=True).start()
            threading.Thread(target=self.give, args=(sink, on_their_way), daemon=True).start()

    def take(self, source, link, on_their_way):
        data = b"-"
        while data:
            try:
                data = source.recv(self.piece)
            except OSError:
                data = b""
            on_their_way.put((link.carried(len(data)) + self.latency, data))

    def give(self, sink, on_their_way):
        try:
            while True:
                arrival, data = on_their_way.get()
                time.sleep(max(0, arrival - time.monotonic()))
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
        except OSError:
            pass


def start_relay(to, latency, rate=0):
    """The relay's process and its address."""
    process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--relay", to, str(latency), str(rate)],
                               stdout=subprocess.PIPE, text=True, preexec_fn=runs.die_with_parent)
    return process, process.stdout.readline().strip()


def relay(to, latency, rate):
    host, port = to.rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    Relay(listener, (host, int(port)), float(latency), float(rate))
    print("127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    threading.Event().wait()


def receive(connection, count, into=memoryview(bytearray(1 << 20))):
    while count > 0:
        received = connection.recv_into(into[:min(count, len(into))])
        if received == 0:
            raise ConnectionError("the relay has closed")
        count -= received


class Credentials:
    """A certificate that has signed itself, for 127.0.0.1."""

    def __init__(self, folder):
        self.certificate, self.key = (os.path.join(folder, name) for name in ("host.pem", "host.key"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", self.key, "-out", self.certificate, "-days", "2", "-subj", "/CN=bench",
                        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)

    def wrap(self, connection, server_side):
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH if server_side else ssl.Purpose.SERVER_AUTH, cafile=self.certificate)
        if server_side:
            context.load_cert_chain(self.certificate, self.key)
        return context.wrap_socket(connection, server_side, server_hostname=None if server_side else "127.0.0.1")

    def keys(self):
        return ["security={certificate: %s, private_key: %s}" % (self.certificate, self.key)]


class NoCredentials:
    def wrap(self, connection, server_side):
        return connection

    def keys(self):
        return ["security.insecure=true"]


def plain(credentials, delay, size):
    """Seconds in which a plain socket sends `size` bytes and is then sent as many."""
    listener = socket.create_server(("127.0.0.1", 0))
    process, address = start_relay("127.0.0.1:%d" % listener.getsockname()[1], delay / 2)
    block = bytes(size)

    def serve():
        with credentials.wrap(listener.accept()[0], server_side=True) as connection:
            for _ in range(PLAIN_REPEATS + 1):
                receive(connection, size)
                connection.sendall(block)

    # A process of its own, as the two ends of a job are.
    server = multiprocessing.Process(target=serve, daemon=True)
    server.start()
    host, port = address.rsplit(":", 1)
    seconds = []
    try:
        with credentials.wrap(socket.create_connection((host, int(port))), server_side=False) as client:
            for _ in range(PLAIN_REPEATS + 1):
                begin = time.monotonic()
                client.sendall(block)
                receive(client, size)
                seconds.append(time.monotonic() - begin)
        server.join()
    finally:
        process.kill()
        process.wait()
        listener.close()
    # The first one finds the kernel's windows small.
    return statistics.median(seconds[1:])


def layers(mebibytes):
    """Two hidden layers of n and 1,024 n / 16 neurons, so that the model has about so many MiB."""
    units = 1024
    inner = max(16, (mebibytes << 20) // 4 // (units + 10) - 64)
    return "[{linear: {units: %d, bias: false}}, relu, {linear: {units: %d, bias: false}}, relu, " \
        "{linear: {units: 10, bias: false}}]" % (units, inner)


def free_ports(count):
    """Below those that connections take by themselves, as the relays' do all the time."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        low = int(file.read().split()[0])
    with contextlib.ExitStack() as stack:
        held = []
        while len(held) < count:
            with contextlib.suppress(OSError):
                held.append(stack.enter_context(socket.create_server(("127.0.0.1", random.randrange(low // 2, low)))))
        return [port.getsockname()[1] for port in held]


def exchange(options, credentials, delay, limit, steps):
    """(seconds, bytes each way, largest peak of a process) of all exchanges of a job through the relays."""
    numbers = free_ports(options.servers)
    relays = [start_relay("127.0.0.1:%d" % number, delay / 2) for number in numbers]
    addresses = ", ".join(address for _, address in relays)
    flags = ["model.layers=" + layers(options.mib), "train.steps=%d" % steps, "train.batch_size=4",
             "train.evaluate_every=0", "method={data_parallel: {}}", "cluster.workers=1", "cluster.lease_timeout=60s",
             "train.optimizer={sgd: {learning_rate: 0.001}}", "cluster.servers=[%s]" % addresses,
             "cluster.transport=tcp"]  # shared memory would go around the relay
    flags += credentials.keys()
    flags += ["cluster.memory_limit=" + limit] if limit != "none" else []
    words = [word for flag in flags for word in ("--set", flag)]
    job = os.path.join(runs.ROOT, "deploy/jobs/digits.yaml")
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        cluster = limited.Cluster(folder)
        try:
            for rank, number in enumerate(numbers):
                words_of_rank = ["--rank", str(rank)] + (["--report", report] if rank == 0 else [])
                # At 0.0.0.0 workers are told the job's address, the relay's.
                cluster.start("server-%d" % rank, [limited.program(options, "tessera-server", "server"), "--job", job,
                                                   "--listen", "0.0.0.0:%d" % number] + words_of_rank + words)
            cluster.start("worker-0", [limited.program(options, "tessera-worker", "worker"), "--job", job] + words)
            if not limited.ended(cluster, cluster.processes[0], JOB_SECONDS_MAX):
                sys.exit("delayed.py: the job does not end; last lines:\n" + cluster.logs())
            with open(report) as file:
                result = json.load(file)
        finally:
            cluster.kill()
            for process, _ in relays:
                process.kill()
                process.wait()
    phases, traffic = result["phases"][0], result["traffic"]["by_worker"][0]
    waited = phases["pull_seconds"] + phases["push_seconds"] + phases["wait_seconds"]
    memory = result["memory"]
    return (waited, traffic["push_payload_bytes"] / traffic["exchanges"],
            max(memory["server_peak_rss_bytes"] + memory["worker_peak_rss_bytes"]))


def bytes_of(limit):
    return int(limit[:-3]) << 20


def row(options, credentials, delay, limit):
    first, size, _ = exchange(options, credentials, delay / 1e3, limit, options.first)
    total, _, peak = exchange(options, credentials, delay / 1e3, limit, options.first + options.steps)
    # In turns, so that all find the machine alike.
    reference = plain(credentials, delay / 1e3, int(size))
    each = (total - first) / options.steps
    return "| %g ms | %.0f | %s | %.0f | %.2f | %.2f | %s |" % (
        delay, 2e-6 * size / reference, limit, 2e-6 * size / each, reference / each,
        reference * options.first / first, "%.2f" % (peak / bytes_of(limit)) if limit != "none" else "")


def main():
    if sys.argv[1:2] == ["--relay"]:
        return relay(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays", nargs="+", type=float, default=[0, 5, 20, 100, 200],
                        help="milliseconds there and back")
    parser.add_argument("--mib", type=int, default=64, help="size of the model")
    parser.add_argument("--limits", nargs="+", default=["none", "1200MiB"], help='cluster.memory_limit: "none" or MiB')
    parser.add_argument("--steps", type=int, default=32, help="that count")
    parser.add_argument("--first", type=int, default=8, help="steps in which windows grow")
    parser.add_argument("--tls", action="store_true", help="all connections are encrypted")
    parser.add_argument("--servers", type=int, default=1, help="each with a part of the model and a connection")
    parser.add_argument("--tessera", default=os.path.join(runs.ROOT, "bazel-bin/deploy/cli/tessera"))
    options = parser.parse_args()
    for limit in options.limits:
        if limit != "none" and not (limit.endswith("MiB") and limit[:-3].isdigit()):
            parser.error('--limits: got "%s", want "none" or a number of MiB, such as 1200MiB' % limit)
    print("| delay | plain, MB/s | limit | MB/s | of plain | first %d steps, of plain | peak of limit |\n"
          "|--:|--:|--:|--:|--:|--:|--:|" % options.first, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        credentials = Credentials(folder) if options.tls else NoCredentials()
        for delay in options.delays:
            for limit in options.limits:
                print(row(options, credentials, delay, limit), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
