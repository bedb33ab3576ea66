"""Servers that die or freeze in mid-run while others follow their shards."""
import unittest

from cluster import ENDLESS, Cluster, Test, digits, free_ports, job_size, members, run_to_end

# Long enough for a machine that is busy with other tests.
LEASE = "3s"

METHODS = {
    "data_parallel": {"data_parallel": {}},
    "async_sgd": {"async_sgd": {}},
    "ssp": {"ssp": {"bound": 2}},
    "ist": {"ist": {"local_steps": 4}},
    "slim_dp": {"slim_dp": {"core_every": 10}},
    "slim_dp every": {"slim_dp": {"core_every": 1}},
    "slim_dp async": {"slim_dp": {"core_every": 10, "asynchronous": True}},
    "softsync": {"softsync": {"pushes": 2}},
}
# Those of a test of their own where all of them together would be near its limit.
LATER = ("slim_dp", "slim_dp every", "slim_dp async", "softsync")


def protected(status):
    return all(owner["in_sync"] for owner in status["owners"])


def takeovers(count):
    return lambda status: int(status["takeovers"]) >= count


class Standbys(Test):
    def job(self, method, servers=3, workers=3, lease=LEASE, **keys):
        if "steps" not in keys:
            keys.setdefault("epochs", ENDLESS)
        return digits(servers=servers, workers=workers, batch=16, lease=lease, method=METHODS[method],
                      cluster={"replicas": 1}, **keys)

    def test_training_goes_on_when_a_server_is_killed(self):
        for name in METHODS:
            with self.case(name):
                cluster = Cluster(self, self.job(name))
                cluster.await_status("all have standbys", protected)
                cluster.await_step(20)
                victim = cluster.servers[1]
                victim.kill()
                status = cluster.await_status("its standby leads", takeovers(1))
                self.assertEqual(status["owners"][1]["leader"], 2)
                # Long before its lease: a connection that ends is enough.
                self.contains(cluster.servers[0].output(), "host lost rank=1", "its connection ended")
                cluster.await_further()
                cluster.await_status("all have standbys again", protected)
                cluster.drain()
                report = cluster.finish(victim)
                self.assertEqual(report["outcome"], "stopped")
                self.assertEqual(report["members"]["lost"], 0)
                self.assertEqual(report["standbys"]["takeovers"], 1)
                self.assertEqual(len(report["standbys"]["takeover_seconds"]), 1)
                self.assertGreater(report["standbys"]["payload_bytes"], 0)

    def test_what_goes_to_standbys_is_counted_to_the_last_byte(self):
        # One sum for each commit, or every push.
        for name, of in (("data_parallel", "rounds"), ("async_sgd", "exchanges")):
            with self.case(name):
                job = self.job(name, servers=2, workers=2, steps=40)
                report = run_to_end(self, job)
                traffic, sent = report["traffic"], report["standbys"]["payload_bytes"]
                updates = traffic["exchanges"] if of == "exchanges" else report["rounds"]
                self.assertEqual(sent, updates * 4 * job_size(job))
                by_workers = sum(worker["other_payload_bytes"] for worker in traffic["by_worker"])
                self.assertEqual(traffic["other_payload_bytes"], by_workers + sent)

    def check_same_bits(self, *names):
        for name in names:
            with self.case(name):
                job = self.job(name, steps=400)
                plain = dict(job, cluster=dict(job["cluster"], replicas=0))
                wanted = run_to_end(self, plain)
                cluster = Cluster(self, job, pause=0.02)
                cluster.await_step(50)
                cluster.servers[1].kill()
                cluster.await_status("its standby leads", takeovers(1))
                report = cluster.finish(cluster.servers[1], within=60)
                self.assertEqual(report["parameters_hash"], wanted["parameters_hash"])
                self.assertEqual(report["examples"], wanted["examples"])
                self.assertEqual(report["rounds"], wanted["rounds"])

    # Apart from each other: a test has a limit of its own.
    def test_a_synchronous_job_has_the_same_bits_whatever_dies(self):
        self.check_same_bits("data_parallel", "ist")

    def test_a_synchronous_job_with_cores_has_the_same_bits_whatever_dies(self):
        self.check_same_bits("slim_dp")

    def test_one_after_the_other_dies_and_comes_back(self):
        for name in ("data_parallel", "async_sgd", "ist", "slim_dp every", "slim_dp async"):
            with self.case(name):
                cluster = Cluster(self, self.job(name))
                cluster.await_status("all have standbys", protected)
                gone = []
                for number, rank in enumerate((1, 2, 1), start=1):
                    victim = [s for s in cluster.servers if s.name == "server %d" % rank and s.alive][0]
                    victim.kill()
                    gone.append(victim)
                    cluster.await_status("takeover %d" % number, takeovers(number))
                    cluster.start_server(rank)
                    cluster.await_status("all have standbys again", protected)
                    cluster.await_further()
                cluster.drain()
                self.assertEqual(cluster.finish(*gone)["outcome"], "stopped")

    def rolled(self, name, **keys):
        """A job whose servers may all be started again, server 0 with the coordinator among them."""
        job = self.job(name, **keys)
        job["cluster"]["servers"] = ["127.0.0.1:%d" % port for port in free_ports(3)]
        job["cluster"]["coordinator"] = {"directory": self.path("coordinator-" + name.replace(" ", "-"))}
        return job

    def leave(self, cluster, rank):
        """Server `rank` is asked to end, and started again; nobody waits for its standbys before the next one goes."""
        server = [s for s in cluster.servers if s.name == "server %d" % rank and s.alive][0]
        cluster.leave(server)
        self.contains(server.output(), "leaving the job", "left the job")
        return server

    def test_a_rolling_restart_of_all_servers_changes_no_bit(self):
        job = self.rolled("data_parallel", steps=600)
        wanted = run_to_end(self, self.job("data_parallel", steps=600))
        cluster = Cluster(self, job, pause=0.03)
        cluster.await_step(50)
        gone = [self.leave(cluster, rank) for rank in (1, 2, 0)]
        status = cluster.await_status("each was taken over from", takeovers(3))
        self.assertEqual(status["state"], "training")
        report = cluster.finish(*gone, within=60)
        for key in ("parameters_hash", "examples", "rounds"):
            self.assertEqual(report[key], wanted[key], key)
        self.assertEqual(report["members"], {"joined": 3, "lost": 0, "partial_pushes": 0})
        self.assertIn("its state is in", gone[2].output())

    def test_a_rolling_restart_of_all_servers_and_workers_loses_and_repeats_nothing(self):
        for name in ("data_parallel", "async_sgd"):
            with self.case(name):
                cluster = Cluster(self, self.rolled(name))
                cluster.await_step(20)
                gone = [self.leave(cluster, rank) for rank in (0, 1, 2)]
                for rank in range(3):
                    worker = [w for w in cluster.workers if w.name == "worker %d" % rank][0]
                    gone.append(worker)
                    cluster.leave(worker)
                    cluster.await_status("it is back", lambda s: len(members(s, "training")) == 3)
                cluster.await_further()
                cluster.await_status("all have standbys again", protected)
                cluster.drain()
                report = cluster.finish(*gone)
                self.assertEqual(report["outcome"], "stopped")
                self.assertEqual(report["members"], {"joined": 6, "lost": 0, "partial_pushes": 0})
                # Every row that any of the six has trained on is in the parameters, and once.
                self.assertEqual(report["examples"], report["parameter_examples"])
                self.assertGreaterEqual(report["standbys"]["takeovers"], 3)

    def check_frozen(self, names):
        for name in names:
            with self.case(name):
                cluster = Cluster(self, self.job(name))
                cluster.await_status("all have standbys", protected)
                cluster.await_step(20)
                frozen = cluster.servers[2]
                frozen.freeze()
                status = cluster.await_status("its standby leads", takeovers(1))
                self.assertEqual(status["owners"][2]["leader"], 0)
                cluster.await_further()
                frozen.thaw()
                frozen.expect_exit(1)
                cluster.await_further()
                cluster.drain()
                self.assertEqual(cluster.finish(frozen)["standbys"]["takeovers"], 1)

    def test_a_frozen_server_costs_a_lease_and_ends_when_it_thaws(self):
        self.check_frozen(name for name in METHODS if name not in LATER)

    def test_a_frozen_server_of_a_job_with_cores_or_softsync_ends_too(self):
        self.check_frozen(LATER)

    def test_with_one_server_left_the_job_goes_on_and_says_so(self):
        cluster = Cluster(self, self.job("data_parallel", servers=2, workers=2))
        cluster.await_status("all have standbys", protected)
        pushed = lambda status, shard: int(status["servers"][shard]["counters"]["push_payload_bytes"])
        # Each server tells its counters every quarter of a second: that must make little difference.
        before = pushed(cluster.await_status("much is pushed", lambda status: pushed(status, 0) > 1e7), 0)
        cluster.servers[1].kill()
        cluster.await_status("its standby leads", takeovers(1))
        cluster.await_further()
        status = cluster.status()
        # What the process took for its own shard is no traffic of the one that it took over.
        self.assertLess(pushed(status, 1), pushed(status, 0) - before / 2)
        self.assertFalse(any(owner["in_sync"] for owner in status["owners"]))
        self.assertEqual([owner["leader"] for owner in status["owners"]], [0, 0])
        cluster.drain()
        self.assertEqual(cluster.finish(cluster.servers[1])["standbys"]["in_sync"], 0)

    def test_a_shard_that_is_lost_with_its_standby_comes_back_from_a_checkpoint(self):
        for name in ("data_parallel", "slim_dp"):
            with self.case(name):
                job = dict(self.job(name), checkpoint={"directory": self.path("saved-" + name), "every_steps": 50})
                cluster = Cluster(self, job)
                cluster.await_status("all have standbys", protected)
                cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 0)
                gone = cluster.servers[1:3]
                for victim in gone:
                    victim.kill()
                cluster.await_status("it waits", lambda s: s.get("waiting_for") == ["server 1"])
                cluster.start_server(1)
                cluster.await_status("it went back", lambda s: int(s["checkpoint"]["rollbacks"]) == 1)
                cluster.await_further()
                cluster.start_server(2)
                cluster.await_status("all have standbys again", protected)
                cluster.await_further()
                cluster.drain()
                report = cluster.finish(*gone)
                self.assertEqual(report["outcome"], "stopped")
                self.assertEqual(report["checkpoint"]["rollbacks"], 1)

    def test_a_shard_that_is_lost_with_its_standby_for_good_is_led_by_another(self):
        for name in ("data_parallel", "slim_dp async"):
            with self.case(name):
                job = dict(self.job(name), checkpoint={"directory": self.path("saved-" + name), "every_steps": 50})
                cluster = Cluster(self, job)
                cluster.await_status("all have standbys", protected)
                cluster.await_status("a checkpoint", lambda s: int(s["checkpoint"]["count"]) > 0)
                gone = cluster.servers[1:3]
                for victim in gone:
                    victim.kill()
                cluster.await_status("it waits", lambda s: s.get("waiting_for") == ["server 1"])
                # Nobody comes: three leases later the one that is left leads all.
                status = cluster.await_status("it went back", lambda s: int(s["checkpoint"]["rollbacks"]) == 1)
                self.assertEqual([owner["leader"] for owner in status["owners"]], [0, 0, 0])
                cluster.await_further()
                cluster.start_server(2)
                cluster.await_status("all have standbys again", protected)
                cluster.await_further()
                cluster.drain()
                report = cluster.finish(*gone)
                self.assertEqual(report["outcome"], "stopped")
                self.assertEqual(report["members"]["lost"], 0)


if __name__ == "__main__":
    unittest.main()
