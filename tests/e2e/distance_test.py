"""Machines that are far from each other, with a lease that is not much longer than the way; and narrow links."""
import unittest

from authority import Authority
from cluster import Cluster, Test, digits, free_ports
from partition import Distance, Narrow

# One way: a round trip around half of the earth, and as much again.
LATENCY = 0.2
# Shared memory would go around the relay, as all are on one machine.
TCP = {"transport": "tcp"}


class FarMachines(Test):
    def train(self, **keys):
        """Everybody reaches everybody, itself included, over that distance."""
        ports = free_ports(2)
        ways = [Distance(self, "127.0.0.1:%d" % port, LATENCY) for port in ports]
        job = digits(servers=[way.address for way in ways], lease="2s", steps=100, **keys)
        authority = Authority(self, "home")
        certificate, key = authority.sign("all")
        job["security"] = {"certificate": certificate, "private_key": key, "authority": authority.certificate}
        cluster = Cluster(self, job, start=False)
        for rank, port in enumerate(ports):
            cluster.start_server(rank, "--listen", "127.0.0.1:%d" % port)
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
                    self.assertLess(waited, (10 + 2) * 2 * LATENCY + 2.5)


class NarrowLinks(Test):
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
