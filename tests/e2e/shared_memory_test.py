"""Payloads by shared memory: the bits of TCP, and nothing left of whoever dies."""
import os
import re
import subprocess
import sys
import time
import unittest

from cluster import ENDLESS, SOON, Cluster, Test, await_true, digits, lost, open_files, run_to_end

METHODS = {
    "data_parallel": ({"data_parallel": {}}, None),
    "quant_dp": ({"quant_dp": {}}, None),
    "threshold": ({"data_parallel": {}}, {"push": {"threshold": {"tau": 0, "density": 0.05}}}),
    "slim_dp": ({"slim_dp": {"local_steps": 2, "core_every": 5}}, None),
    "ist": ({"ist": {"local_steps": 5}}, None),
    "decentralized": ({"decentralized": {"density": 0.05}}, None),
}
BY_MEMORY = "payloads go by shared memory"
# A user of no process here.
OTHER = 64321
# Asks at a server's socket for its memory, and looks for it among the server's open files.
STRANGER = """
import os, socket, struct, sys
door, server = sys.argv[1:]
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect("\\0" + door)
memory = os.memfd_create("stranger", os.MFD_ALLOW_SEALING)
try:
    socket.send_fds(connection, [b"tsrmem01" + struct.pack("<QQQ", 1, 1 << 20, 0)], [memory])
    data, descriptors, _, _ = socket.recv_fds(connection, 100, 8)
except (BrokenPipeError, ConnectionResetError):
    data, descriptors = b"", []
print("got %d bytes and %d descriptors" % (len(data), len(descriptors)))
try:
    print(os.listdir("/proc/%s/fd" % server))
except PermissionError as error:
    print(type(error).__name__)
"""


def wide(transport="auto", **keys):
    """A model whose payloads are too large for messages: 600 KB, in two servers."""
    return digits(units=2048, norm=False, cluster={"transport": transport}, **keys)


def moved(traffic):
    return sum(traffic[key] for key in ("pull_payload_bytes", "push_payload_bytes", "other_payload_bytes"))


def arenas(process):
    """How often the process maps memory that is shared."""
    with open("/proc/%d/maps" % process.pid) as maps:
        return sum("memfd:tessera" in line for line in maps)


def may_be_another():
    """Whether this process may start one of another user."""
    try:
        subprocess.run(["true"], check=True, user=OTHER, group=OTHER, extra_groups=[])
        return True
    except (OSError, subprocess.SubprocessError):
        return False


def doors_of(pid):
    """The names of the abstract sockets at which the process waits for others to share memory."""
    own = open_files(pid)
    with open("/proc/net/unix") as sockets:
        found = re.findall(r" (\d+) @(tessera-[0-9a-f]{16})$", sockets.read(), re.M)
    # What comes in there has the same name.
    return sorted({name for inode, name in found if "socket:[%s]" % inode in own})


class SharedMemory(Test):
    def test_every_method_has_the_bits_of_tcp(self):
        for name, (method, codec) in METHODS.items():
            with self.case(name):
                reports = {}
                for transport in ("auto", "tcp"):
                    job = wide(transport, method=method, steps=60, lease="20s")
                    if codec:
                        job["codec"] = codec
                    reports[transport] = run_to_end(self, job)
                # Replicas that are not combined under a barrier fold in the order of arrival.
                if name != "decentralized":
                    self.assertEqual(reports["auto"]["parameters_hash"], reports["tcp"]["parameters_hash"])
                self.assertEqual(reports["auto"]["steps"], reports["tcp"]["steps"])
                self.assertEqual(reports["tcp"]["traffic"]["shared_memory_bytes"], 0)
                traffic = reports["auto"]["traffic"]
                self.assertLessEqual(traffic["shared_memory_bytes"], moved(traffic))
                # What is moved before there is memory to share is not in it, nor are the keys of cores.
                self.assertGreater(traffic["shared_memory_bytes"], 0.9 * moved(traffic))

    def test_status_and_log_say_how_payloads_go(self):
        for transport, word in (("auto", "shared_memory"), ("tcp", "tcp")):
            with self.case(transport):
                cluster = Cluster(self, wide(transport, epochs=ENDLESS))
                cluster.await_step(20)
                cluster.await_status("it says so", lambda s: [m.get("transport") for m in s["members"]] == [word] * 2)
                for worker in cluster.workers:
                    self.assertEqual(worker.output().count(BY_MEMORY), 2 if transport == "auto" else 0)
                cluster.drain()
                cluster.finish()

    @unittest.skipUnless(may_be_another(), "this user cannot become another one")
    def test_another_user_is_given_nothing(self):
        cluster = Cluster(self, wide(epochs=ENDLESS))
        cluster.await_step(20)
        server = cluster.servers[0]
        doors = doors_of(server.pid)
        self.assertEqual(len(doors), 1)
        # A hello of the right form, with a number that may have been given to somebody, and memory of its own.
        done = subprocess.run([sys.executable, "-c", STRANGER, doors[0], str(server.pid)], capture_output=True,
                              text=True, timeout=SOON, user=OTHER, group=OTHER, extra_groups=[])
        self.assertEqual((done.stdout, done.stderr), ("got 0 bytes and 0 descriptors\nPermissionError\n", ""))
        await_true("the server says so", lambda: "the peer's user is %d, want %d" % (OTHER, os.geteuid())
                   in server.output())
        cluster.await_further()
        cluster.drain()
        cluster.finish()

    def test_whoever_dies_leaves_nothing(self):
        cluster = Cluster(self, wide(workers=3, lease="4s", epochs=ENDLESS))
        # A server maps its arena, and the area of each worker.
        await_true("all share memory", lambda: [arenas(server) for server in cluster.servers] == [4, 4],
                   explain=cluster.logs)
        cluster.await_further()
        cluster.workers[1].kill()
        cluster.await_status("a worker is lost", lost)
        await_true("its memory is gone", lambda: [arenas(server) for server in cluster.servers] == [3, 3])
        cluster.await_further()
        # A server that stands still in the middle of exchanges goes on where it was, with the same links.
        for _ in range(5):
            cluster.servers[1].freeze()
            time.sleep(0.2)
            cluster.servers[1].thaw()
            cluster.await_further()
        self.assertEqual([arenas(server) for server in cluster.servers], [3, 3])
        # So does a worker.
        cluster.workers[0].freeze()
        time.sleep(0.2)
        cluster.workers[0].thaw()
        cluster.await_further()
        cluster.drain()
        self.assertEqual(cluster.finish(cluster.workers[1])["members"]["lost"], 1)

    def test_a_shard_moves_while_payloads_are_in_memory(self):
        for workers in (1, 3):
            with self.case(workers):
                job = wide(workers=workers, lease="4s", epochs=ENDLESS)
                job["cluster"]["replicas"] = 1
                cluster = Cluster(self, job)
                cluster.await_step(20)
                await_true("all share memory", lambda: arenas(cluster.servers[1]) == 1 + workers, explain=cluster.logs)
                cluster.servers[1].kill()
                cluster.await_further(100)
                cluster.drain()
                self.assertEqual(cluster.finish(cluster.servers[1])["members"]["lost"], 0)


if __name__ == "__main__":
    unittest.main()
