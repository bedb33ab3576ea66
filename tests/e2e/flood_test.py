"""Strangers who open connections and calls and finish none of them, with real processes."""
import socket
import struct
import unittest

from attacks import DATA, END_STREAM, PREFACE, SETTINGS, begin_call, frame
from cluster import Cluster, Test, await_true, digits, memory, open_files

ENDLESS = 1000000
CONNECTIONS = 36
STREAMS = 30  # of each connection


def half_a_message(stream):
    """The prefix of a message of 4 MB, and some of it."""
    return frame(DATA, 0, stream, b"\x00" + struct.pack(">I", 4000000) + b"\x0a" * 1500)


def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def flood(address, method):
    """A connection with calls of which no message ever ends; None: the server would not have it."""
    try:
        stranger = connect(address)
        stranger.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        for i in range(STREAMS):
            stranger.sendall(begin_call(2 * i + 1, method) + half_a_message(2 * i + 1))
        return stranger
    except OSError:
        return None


def unread(address, method):
    """A connection with calls that are whole, whose replies it lets nobody send; None: the server would not have it."""
    try:
        stranger = connect(address)
        # An initial window of 0 bytes.
        stranger.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
        for i in range(STREAMS):
            stranger.sendall(begin_call(2 * i + 1, method) + frame(DATA, END_STREAM, 2 * i + 1, bytes(5)))
        return stranger
    except OSError:
        return None


def connections(process):
    """(own port, other port) of the process's TCP connections; all are on one host."""
    inodes, found = open_files(process.pid), []
    for table in ("tcp", "tcp6"):
        with open("/proc/%d/net/%s" % (process.pid, table)) as lines:
            for row in [line.split() for line in lines][1:]:
                if row[3] == "01" and "socket:[%s]" % row[9] in inodes:
                    found.append((row[1].split(":")[1], row[2].split(":")[1]))
    return found


def calls(caller, server):
    """The caller's connections to the server."""
    ends = set(connections(server))
    return [pair for pair in connections(caller) if (pair[1], pair[0]) in ends]


class Flood(Test):
    def test_server_0_has_no_connection_to_itself_that_strangers_could_cost_it(self):
        for name, cluster in (("no standbys", {}), ("standbys", {"replicas": 1})):
            with self.case(name):
                cluster = Cluster(self, digits(epochs=ENDLESS, cluster=cluster))
                cluster.await_step(20)
                zero, one = cluster.servers
                self.assertEqual(calls(zero, zero), [])
                # Where the coordinator is another process, it is called.
                self.assertNotEqual(calls(one, zero), [])
                cluster.drain()
                self.assertEqual(cluster.finish()["outcome"], "stopped")

    def test_a_thousand_calls_that_never_end_do_not_stop_a_job(self):
        cluster = Cluster(self, digits(epochs=ENDLESS))
        cluster.await_step(20)
        before = [memory(server) for server in cluster.servers]
        strangers = []
        for method in (b"/tessera.v1.ParameterServer/Push", b"/tessera.v1.ParameterServer/Pull",
                       b"/tessera.v1.Coordinator/Join"):
            for server in cluster.servers:
                strangers += [flood(server.address, method) for _ in range(CONNECTIONS // 3)]
        self.assertGreater(len([s for s in strangers if s]) * STREAMS, 1000)
        cluster.await_further(100)
        for server, was in zip(cluster.servers, before):
            self.assertTrue(server.alive)
            self.assertLess(memory(server) - was, 256 << 20)
        for stranger in strangers:
            if stranger:
                stranger.close()
        cluster.drain()
        report = cluster.finish()
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))

    def test_statuses_that_nobody_reads_do_not_stop_a_job(self):
        # Epochs of a few steps, each with an evaluation in the status.
        cluster = Cluster(self, digits(epochs=ENDLESS, batch=300, evaluate_every=1))
        await_true("a long history", lambda: len(cluster.status().get("history", [])) > 200, explain=cluster.logs)
        zero = cluster.servers[0]
        before = memory(zero)
        strangers = []
        for method in (b"/tessera.v1.Status/Get", b"/tessera.v1.Status/Watch"):
            strangers += [unread(zero.address, method) for _ in range(CONNECTIONS)]
            cluster.await_further(20)
        self.assertGreater(len([s for s in strangers if s]) * STREAMS, 2000)
        self.assertTrue(zero.alive)
        self.assertLess(memory(zero) - before, 256 << 20)
        # Whoever reads is told.
        self.assertIn(cluster.status()["state"], ("training", "evaluating"))
        for stranger in strangers:
            if stranger:
                stranger.close()
        cluster.drain()
        report = cluster.finish()
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))

    def test_connections_that_say_nothing_do_not_stop_a_job(self):
        cluster = Cluster(self, digits(epochs=ENDLESS))
        cluster.await_step(20)
        # 64 and 8 for each worker are one host's; all are this one's.
        strangers = [connect(cluster.coordinator) for _ in range(300)]
        await_true("the server refuses some", lambda: "connection refused host=127.0.0.1" in
                   cluster.servers[0].output(), explain=cluster.logs)
        for worker in cluster.workers:
            self.assertTrue(worker.alive)
        for stranger in strangers:
            stranger.close()
        # Whoever was there trains on, and there is room again for those who come.
        cluster.await_further(50)
        cluster.drain()
        report = cluster.finish()
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))


if __name__ == "__main__":
    unittest.main()
