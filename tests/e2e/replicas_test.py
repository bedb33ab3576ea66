"""Training without central servers: a replica beside every worker, and sites that die, leave and come."""
import signal
import unittest

from cluster import ENDLESS, Cluster, Test, digits, free_ports, job_size, lost, members, run_to_end, tessera, write_job


def replicated(workers=3, lease="4s", f32=True, **keys):
    """Lossless unless `f32` is off: then with the method's own codec."""
    method = keys.pop("method", {"decentralized": {}})
    job = digits(servers=workers, workers=workers, method=method, rate=0.06, batch=16, lease=lease, **keys)
    if f32:
        job["codec"] = {"push": "f32"}
    return job


def endless(**keys):
    return replicated(epochs=ENDLESS, **keys)


class Replicas(Test):
    def check_end(self, report, joined, lost_workers, removed_alive=0):
        # Those that have no end are drained.
        outcome = "finished" if report["steps"] == report["planned_steps"] else "stopped"
        self.assertEqual((report["outcome"], report["members"]["joined"], report["members"]["lost"]),
                         (outcome, joined, lost_workers))
        # One that trains when it is removed may be in the middle of an exchange with every peer.
        self.assertLessEqual(report["refused_pushes"], removed_alive * joined)

    def test_pushes_go_to_all_peers_and_what_goes_to_oneself_is_not_counted(self):
        job = replicated(epochs=8)
        report = run_to_end(self, job)
        self.check_end(report, 3, 0)
        traffic, size = report["traffic"], 4 * job_size(job)
        self.assertEqual(traffic["push_payload_bytes"], traffic["exchanges"] * 2 * size)
        self.assertEqual(traffic["pull_payload_bytes"], (traffic["exchanges"] + 3) * size)
        self.assertEqual(report["memory"]["parameter_bytes"], 3 * size)
        self.assertEqual(sum(report["staleness"]["histogram"]), traffic["exchanges"])
        self.assertGreater(report["final"]["test_accuracy"], 0.88)

    def test_the_methods_own_codec_sends_few_entries_and_if_asked_all_the_rest_at_the_end(self):
        for flush in (False, True):
            with self.case("flush %s" % flush):
                job = replicated(f32=False, epochs=20)
                if flush:
                    job["codec"] = {"flush": True}
                report = run_to_end(self, job)
                self.check_end(report, 3, 0)
                traffic, size = report["traffic"], 4 * job_size(job)
                # The last push of each is whole; of the others a few in a thousand entries go.
                flushed = 3 * 2 * size if flush else 0
                self.assertGreater(traffic["push_payload_bytes"], flushed)
                self.assertLess(traffic["push_payload_bytes"] - flushed, 0.02 * traffic["exchanges"] * 2 * size)
                self.assertGreater(report["final"]["test_accuracy"], 0.88)

    def test_a_server_that_dies_takes_its_worker_with_it_and_the_others_go_on(self):
        cluster = Cluster(self, endless())
        cluster.await_step(20)
        cluster.servers[1].kill()
        cluster.await_status("its worker is lost", lambda status: lost(status) == 1)
        self.contains(cluster.workers[1].expect_exit(1), "its server was last heard")
        cluster.await_further()
        cluster.drain()
        self.check_end(cluster.finish(cluster.servers[1], cluster.workers[1]), 3, 1, removed_alive=1)
        self.assertIn("server removed rank=1", cluster.servers[0].output())

    def test_a_frozen_server_is_removed_and_ends_when_it_thaws(self):
        cluster = Cluster(self, endless())
        cluster.await_step(20)
        cluster.servers[2].freeze()
        cluster.await_status("its worker is lost", lambda status: lost(status) == 1)
        cluster.await_further()
        cluster.servers[2].thaw()
        # Told so, or by itself, as it has not heard the coordinator for a lease.
        self.assertRegex(cluster.servers[2].expect_exit(1), "server 2 was removed|not heard for the lease")
        cluster.await_further()
        cluster.drain()
        self.check_end(cluster.finish(cluster.servers[2], cluster.workers[2]), 3, 1, removed_alive=1)

    def test_nobody_waits_for_a_worker_that_died_while_it_has_its_lease(self):
        cluster = Cluster(self, endless(lease="60s"))
        cluster.await_step(20)
        cluster.workers[1].kill()
        cluster.await_further(40)
        cluster.await_further(40)
        self.assertEqual(lost(cluster.status()), 0)

    def test_a_worker_that_dies_may_be_replaced_beside_its_server(self):
        cluster = Cluster(self, endless())
        cluster.await_step(20)
        cluster.workers[1].kill()
        cluster.await_status("it is lost", lambda status: lost(status) == 1)
        late = cluster.start_worker()
        late.await_output("joined rank=1")
        cluster.await_status("three train", lambda status: len(members(status, "training")) == 3)
        cluster.await_further()
        cluster.drain()
        self.check_end(cluster.finish(cluster.workers[1]), 4, 1)

    def test_a_site_that_comes_copies_a_replica_and_trains(self):
        cluster = Cluster(self, endless())
        cluster.await_step(20)
        # One more than the job began with, and one in a lost one's place.
        cluster.servers[2].kill()
        cluster.await_status("its worker is lost", lambda status: lost(status) == 1)
        for rank in (2, 3):
            server = cluster.start_server(rank)
            server.await_output("replica copied")
            late = cluster.start_worker()
            late.await_output("joined rank=%d" % rank)
        cluster.await_status("four train", lambda status: len(members(status, "training")) == 4)
        cluster.await_further(40)
        cluster.drain()
        report = cluster.finish(cluster.servers[2], cluster.workers[2])
        self.check_end(report, 5, 1, removed_alive=1)
        traffic = report["traffic"]
        copied = traffic["other_payload_bytes"] - sum(w["other_payload_bytes"] for w in traffic["by_worker"])
        copies, rest = divmod(copied, 4 * job_size(cluster.job))
        # One each, and another one where the first had come too early.
        self.assertEqual(rest, 0)
        self.assertGreaterEqual(copies, 2)
        # All replicas score alike: one that had missed a push would not.
        self.assertGreater(report["final"]["test_accuracy"], 0.8)

    def test_a_server_that_is_asked_to_end_leaves_and_the_others_go_on(self):
        cluster = Cluster(self, endless())
        cluster.await_step(20)
        cluster.servers[1].signal(signal.SIGTERM)
        cluster.servers[1].expect_exit(0)
        self.contains(cluster.workers[1].expect_exit(1), "its server was asked to end")
        cluster.await_further()
        cluster.drain()
        self.check_end(cluster.finish(cluster.workers[1]), 3, 1, removed_alive=1)

    def test_the_job_ends_with_server_0_which_has_the_coordinator(self):
        cluster = Cluster(self, endless())
        cluster.await_step(20)
        cluster.servers[0].kill()
        for process in cluster.servers[1:] + cluster.workers:
            process.expect_exit(1)
        again = Cluster(self, endless())
        again.await_step(20)
        again.drain()
        self.check_end(again.finish(), 3, 0)

    def test_the_job_goes_on_when_server_0_is_started_again_and_its_state_is_kept(self):
        job = endless()
        job["cluster"]["servers"] = ["127.0.0.1:%d" % port for port in free_ports(3)]
        job["cluster"]["coordinator"] = {"directory": self.path("coordinator"), "away_timeout": "1m"}
        cluster = Cluster(self, job)
        cluster.await_step(20)
        dead = cluster.servers.pop(0), cluster.workers[0]
        dead[0].kill()
        dead[0].exit_code()
        cluster.start_server(0)
        cluster.servers.insert(0, cluster.servers.pop())
        self.contains(dead[1].expect_exit(1), "its server was restarted")
        cluster.await_further()
        late = cluster.start_worker()
        late.await_output("joined rank=0")
        cluster.await_status("three train", lambda status: len(members(status, "training")) == 3)
        cluster.await_further()
        cluster.drain()
        self.check_end(cluster.finish(*dead), 4, 1, removed_alive=1)

    def test_others_begin_when_the_warm_up_is_over(self):
        # No multiple of what is trained between exchanges: it ends with the exchange.
        warmup, local = 203, 5
        job = endless(method={"decentralized": {"warmup_steps": warmup, "local_steps": local}})
        cluster = Cluster(self, job)
        for late in cluster.workers[1:]:
            late.await_output("waiting for the warm-up of worker 0")
        for late in cluster.workers[1:]:
            late.await_output("joined rank=")
            # One more than worker 0 has made, or the next one where it was asked before the last.
            first = int(late.output().split("first_exchange=")[1].split()[0])
            self.assertLessEqual(first, -(-warmup // local) + 2)
        self.contains(cluster.workers[0].output(), "warm-up is over, waiting for worker 1")
        cluster.await_further(40)
        cluster.drain()
        report = cluster.finish()
        self.check_end(report, 3, 0)
        for worker in report["traffic"]["by_worker"]:
            self.assertGreater(worker["exchanges"], 0)

    def test_a_short_job_with_a_warm_up_is_trained_by_all(self):
        warmup, steps = 10, 50
        report = run_to_end(self, replicated(steps=steps, method={"decentralized": {"warmup_steps": warmup}}))
        self.check_end(report, 3, 0)
        exchanges = [worker["exchanges"] for worker in report["traffic"]["by_worker"]]
        self.assertEqual(exchanges, [steps, steps - warmup, steps - warmup])

    def test_nobody_waits_at_the_end_of_the_warm_up_for_who_has_died(self):
        cluster = Cluster(self, endless(workers=2, method={"decentralized": {"warmup_steps": 300}}))
        cluster.workers[1].await_output("waiting for the warm-up of worker 0")
        cluster.workers[1].kill()
        cluster.await_step(340)
        cluster.drain()
        report = cluster.finish(cluster.workers[1])
        # It may have been admitted before its lease was over.
        late = report["members"]["lost"]
        self.check_end(report, 1 + late, late)

    def test_jobs_that_cannot_be_are_refused(self):
        job = replicated(epochs=1)
        job["cluster"]["servers"] = 2
        code, _, error = tessera("run", write_job(self, job))
        self.assertEqual(code, 2)
        self.contains(error, "cluster.servers.count: got 2, want 3, the number of workers (cluster.workers)")


if __name__ == "__main__":
    unittest.main()
