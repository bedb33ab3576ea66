"""Shards that take longer than a lease to make, or to read from a checkpoint: nobody takes their servers for lost."""
import os
import unittest

from cluster import ENDLESS, PATIENCE, Cluster, Test, digits, run_to_end

# Long enough for a machine that is busy with other tests.
LEASE = "%ds" % (3 * PATIENCE)
# Longer than that, as a large shard does; more of it would find nothing else.
SLEEP = "sleep:%d" % (6500 * PATIENCE)
MAKE = "shard.make=" + SLEEP
READ = "shard.load=" + SLEEP


def saving(job, folder, every):
    return dict(job, checkpoint={"directory": folder, "every_steps": every})


def restoring(job, folder):
    return dict(job, checkpoint={"restore": folder})


def has_checkpoint(status):
    return int(status["checkpoint"]["count"]) > 0


def went_back(status):
    return int(status["checkpoint"]["rollbacks"]) == 1


def protected(status):
    return all(owner["in_sync"] for owner in status["owners"])


class SlowShards(Test):
    test_max = 300

    def slow_cluster(self, job, rule, workers=True):
        self.slow = {"TESSERA_FAILPOINTS": rule}
        cluster = Cluster(self, job, start=False)
        for rank in range(job["cluster"]["servers"]):
            cluster.start_server(rank, env=self.slow)
        for rank in range(job["cluster"]["workers"] if workers else 0):
            cluster.start_worker(rank)
        return cluster

    def check_was_slow(self, *servers):
        for server in servers:
            for rule in self.slow["TESSERA_FAILPOINTS"].split(";"):
                self.contains(server.output(), "TESSERA_FAILPOINTS: %s at " % rule)

    def check_nobody_was_away(self, cluster, *gone):
        for server in cluster.servers:
            if server not in gone:
                self.assertNotIn("coordinator is away", server.output())

    def test_a_job_that_begins_from_a_checkpoint_waits_for_those_who_read_it(self):
        job = digits(steps=60, lease=LEASE)
        folder = self.path("saved")
        whole = run_to_end(self, saving(job, folder, 20))
        first = sorted(name for name in os.listdir(folder) if name.startswith("step-"))[0]
        cluster = self.slow_cluster(restoring(job, os.path.join(folder, first)), READ)
        report = cluster.finish()
        for key in ("parameters_hash", "steps", "parameter_examples"):
            self.assertEqual(report[key], whole[key])
        self.contains(cluster.servers[0].output(), "checkpoint: restored step=")
        self.check_was_slow(*cluster.servers)
        self.check_nobody_was_away(cluster)

    def test_a_job_that_goes_back_waits_for_those_who_read_the_checkpoint(self):
        job = digits(steps=ENDLESS, lease=LEASE)
        cluster = self.slow_cluster(saving(job, self.path("saved"), 50), READ)
        cluster.await_status("a checkpoint", has_checkpoint)
        victim = cluster.servers[1]
        victim.kill()
        cluster.await_status("it waits", lambda status: status.get("waiting_for") == ["server 1"])
        cluster.start_server(1, env=self.slow)
        cluster.await_status("it went back", went_back)
        cluster.await_further()
        self.check_was_slow(cluster.servers[0], cluster.servers[-1])
        self.check_nobody_was_away(cluster, victim)
        cluster.drain()
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["checkpoint"]["rollbacks"]), ("stopped", 1))

    def test_a_job_that_is_drained_while_it_goes_back_begins_again_and_ends_well(self):
        cluster = self.slow_cluster(saving(digits(steps=ENDLESS, lease=LEASE), self.path("saved"), 50), READ)
        cluster.await_status("a checkpoint", has_checkpoint)
        victim = cluster.servers[1]
        victim.kill()
        cluster.await_status("it waits", lambda status: status.get("waiting_for") == ["server 1"])
        cluster.start_server(1, env=self.slow)
        back = cluster.await_status("it went back", went_back)
        cluster.drain()
        cluster.await_status("it is to end", lambda status: status["state"] == "draining")
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["checkpoint"]["rollbacks"]), ("stopped", 1))
        self.assertGreater(report["steps"], int(back["checkpoint_step"]))
        self.assertEqual(report["history"][-1]["step"], report["steps"])

    def test_a_server_that_is_to_end_while_it_reads_does_so(self):
        job = digits(steps=40, lease=LEASE)
        folder = self.path("saved")
        run_to_end(self, saving(job, folder, 20))
        cluster = self.slow_cluster(restoring(job, folder), READ, workers=False)
        cluster.servers[0].await_output("server attached rank=1")
        cluster.drain()
        for server in cluster.servers:
            self.contains(server.expect_exit(1), "it was drained before it had started")

    def check_hosts(self, comes_back):
        """Hosts make and read what they lead and follow, and are not given up."""
        job = digits(servers=3, workers=3, steps=ENDLESS, lease=LEASE, cluster={"replicas": 1})
        cluster = self.slow_cluster(saving(job, self.path("saved"), 50), MAKE + ";" + READ)
        cluster.await_status("all have standbys", protected)
        cluster.await_status("a checkpoint", has_checkpoint)
        gone = cluster.servers[1:3]
        for victim in gone:
            victim.kill()
        cluster.await_status("it waits", lambda status: status.get("waiting_for") == ["server 1"])
        if comes_back:
            cluster.start_server(1, env=self.slow)
        cluster.await_status("it went back", went_back)
        cluster.await_further()
        cluster.start_server(2, env=self.slow)
        cluster.await_status("all have standbys again", protected)
        cluster.await_further()
        self.check_was_slow(cluster.servers[0])
        log = cluster.servers[0].output()
        # Nobody but who was killed, and no standby was given up for being made.
        self.assertEqual(log.count("host lost"), 2, log)
        self.assertNotIn("has not answered", log)
        self.check_nobody_was_away(cluster, *gone)
        cluster.drain()
        report = cluster.finish(*gone)
        self.assertEqual((report["outcome"], report["checkpoint"]["rollbacks"]), ("stopped", 1))

    # Apart from each other: a test has a limit of its own.
    def test_hosts_are_not_given_up_while_they_make_and_read_what_one_that_comes_back_has(self):
        self.check_hosts(comes_back=True)

    def test_hosts_are_not_given_up_while_they_make_and_read_what_one_has_that_is_lost_for_good(self):
        self.check_hosts(comes_back=False)


if __name__ == "__main__":
    unittest.main()
