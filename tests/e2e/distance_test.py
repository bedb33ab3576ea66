"""Machines that are far from each other, with a lease that is not much longer than the way; and narrow links."""
import unittest

from authority import Authority
from cluster import Cluster, Test, digits, free_ports, tessera
from partition import Distance, Narrow

# One way: a round trip around half of the earth, and as much again.
LATENCY = 0.2
MIB = 1 << 20
# Shared memory would go around the relay, as all are on one machine.
TCP = {"transport": "tcp"}
RULE = r"gRPC EXPERIMENT memory_pressure_controller +"


class FarMachines(Test):
    # A busy machine may hold up a run for so long, which is less than a second round trip of each exchange would take.
    HELD_UP_SECONDS = 3.5

    def train(self, **keys):
        """Everybody reaches everybody, itself included, over that distance."""
        ports = free_ports(2)
        ways = [Distance(self, "127.0.0.1:%d" % port, LATENCY) for port in ports]
        job = digits(servers=[way.address for way in ways], lease="3s", steps=100, **keys)
        authority = Authority(self, "home")
        certificate, key = authority.sign("all")
        job["security"] = {"certificate": certificate, "private_key": key, "authority": authority.certificate}
        cluster = Cluster(self, job, start=False)
        for rank, port in enumerate(ports):
            # Workers are told the job's addresses, which go over the distance.
            cluster.start_server(rank, "--listen", "0.0.0.0:%d" % port)
        for rank in range(2):
            cluster.start_worker(rank)
        report = cluster.finish(within=60)
        self.assertEqual(report["members"], {"joined": 2, "lost": 0, "partial_pushes": 0})
        self.assertEqual(report["steps"], 100)
        return report

    def test_they_train_together_with_tls_and_short_leases(self):
        for overlap in (False, True):
            with self.case("overlap %s" % overlap):
                report = self.train(method={"local_sgd": {"local_steps": 10, "overlap": overlap}})
                # Push and pull of an exchange go together: one round trip each.
                for phases in report["phases"]:
                    waited = phases["pull_seconds"] + phases["push_seconds"] + phases["wait_seconds"]
                    self.assertLess(waited, (10 + 2) * 2 * LATENCY + self.HELD_UP_SECONDS)


class Limited(Test):
    """A model of 22.6 MiB over a round trip of 200 ms, with cluster.memory_limit."""
    test_max = 240

    def exchange(self, limit):
        """Seconds of an exchange, what doctor says while the job trains, and the logs of server and worker."""
        port = free_ports(1)[0]
        way = Distance(self, "127.0.0.1:%d" % port, LATENCY / 2)
        job = digits(batch=4, servers=[way.address], workers=1, steps=6, lease="30s",
                     cluster=dict(TCP, memory_limit=limit))
        job["model"]["layers"] = [{"linear": {"units": 2400}}, "relu", {"linear": {"units": 2400}}, "relu",
                                  {"linear": {"units": 10}}]
        job["security"] = {"insecure": True}
        cluster = Cluster(self, job, start=False)
        # gRPC then says by which rule its windows follow the network.
        env = {"GRPC_VERBOSITY": "debug"}
        cluster.start_server(0, "--listen", "0.0.0.0:%d" % port, env=env)
        cluster.start_worker(0, env=env)
        cluster.await_step(1, within=60)
        code, out, error = tessera("doctor", cluster.path)
        self.assertEqual((code, error), (0, ""), out)
        report = cluster.finish(within=100)
        for kind in ("server", "worker"):
            self.assertLess(report["memory"]["%s_peak_rss_bytes" % kind][0], limit)
        phases, exchanges = report["phases"][0], report["traffic"]["by_worker"][0]["exchanges"]
        waited = phases["pull_seconds"] + phases["push_seconds"] + phases["wait_seconds"]
        return waited / exchanges, " ".join(out.split()), cluster.servers[0].output(), cluster.workers[0].output()

    def test_windows_follow_the_way_where_the_limit_leaves_room(self):
        narrow, said, server, _ = self.exchange(180 * MIB)
        self.assertIn("windows=narrow", server)
        self.assertRegex(server, RULE + "OFF")
        self.assertRegex(said, r"a server has narrow windows; at \d{3} ms, as measured to 127\.0\.0\.1:\d+, a "
                               r"connection brings \d\.\d MiB a second at most .* with a limit of \d+ bytes")
        # Each message of the push waits for the one before it to be read on the other side.
        self.assertGreater(narrow, 18 * LATENCY)
        self.doCleanups()
        wide, said, server, worker = self.exchange(512 * MIB)
        self.assertIn("windows=follow_network freed=kept", server)
        self.assertIn("windows=follow_network freed=kept", worker)
        for output in (server, worker):
            self.assertRegex(output, RULE + "OFF")
        # There is room for a second connection, and 22.6 MiB are enough for two.
        self.assertRegex(worker, r'calls go on several connections server="0 at [^"]+" connections=2')
        self.contains(said, "a server has ", "a worker has ", " left for windows that follow the network; at ")
        self.assertLess(wide, 0.75 * narrow)
        with open("/proc/sys/net/ipv4/tcp_slow_start_after_idle") as file:
            if file.read().strip() == "1":
                self.assertRegex(said, r"127\.0\.0\.1:\d+ is \d{3} ms away: a connection that was idle begins slowly "
                                       r"anew, so that the 22\.\d MiB of an exchange take up to 11 round trips")


class NarrowLinks(Test):
    test_max = 240

    def exchange(self, units, step, **rates):
        """A worker whose parameters go by a link of these rates; what it says to the coordinator does not."""
        port = free_ports(1)[0]
        link = Narrow(self, "127.0.0.1:%d" % port, **rates)
        job = digits(units=units, servers=[link.address], workers=1, steps=100, cluster=TCP)
        job["security"] = {"insecure": True}
        cluster = Cluster(self, job, start=False)
        cluster.start_server(0, "--listen", "0.0.0.0:%d" % port)
        cluster.start_worker(0, coordinator="127.0.0.1:%d" % port)
        cluster.await_step(step, within=100)
        self.assertGreater(link.longest, 50)

    # gRPC's pings wait behind what the link has yet to carry, up to a mebibyte and what the sender's kernel holds.
    def test_a_push_that_takes_a_minute_needs_no_second_attempt(self):
        self.exchange(4000, 2, up=20_000)

    def test_a_pull_that_takes_a_minute_needs_no_second_attempt(self):
        self.exchange(8000, 1, down=40_000)


if __name__ == "__main__":
    unittest.main()
