"""Payloads by shared memory: the bits of TCP, and nothing left of whoever dies."""
import time
import unittest

from cluster import ENDLESS, Cluster, Test, await_true, digits, lost, run_to_end

METHODS = {
    "data_parallel": ({"data_parallel": {}}, None),
    "quant_dp": ({"quant_dp": {}}, None),
    "threshold": ({"data_parallel": {}}, {"push": {"threshold": {"tau": 0, "density": 0.05}}}),
    "slim_dp": ({"slim_dp": {"local_steps": 2, "core_every": 5}}, None),
    "ist": ({"ist": {"local_steps": 5}}, None),
    "decentralized": ({"decentralized": {"density": 0.05}}, None),
}
BY_MEMORY = "payloads go by shared memory"


def wide(transport="auto", **keys):
    """A model whose payloads are too large for messages: 600 KB, in two servers."""
    return digits(units=2048, norm=False, cluster={"transport": transport}, **keys)


def arenas(process):
    """How often the process maps memory that is shared."""
    with open("/proc/%d/maps" % process.pid) as maps:
        return sum("memfd:tessera" in line for line in maps)


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

    def test_whoever_dies_leaves_nothing(self):
        cluster = Cluster(self, wide(workers=3, lease="1500ms", epochs=ENDLESS))
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
                job = wide(workers=workers, lease="1500ms", epochs=ENDLESS)
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
