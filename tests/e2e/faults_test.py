"""Processes that die, freeze, come late or come back, while others train."""
import signal
import time
import unittest

from cluster import ENDLESS, SOON, TEST_MAX, Cluster, Test, digits, lost, members, run_to_end, tessera

# Long enough for a machine that is busy with other tests.
LEASE = "4s"
# What a worker says that ends because it is no member any more.
ENDED = "ended error="
# And one that was asked to leave.
LEFT = ("leaving after this exchange", "worker: ended")


def endless(**keys):
    return digits(epochs=ENDLESS, batch=16, lease=LEASE, **keys)


class WorkerFaults(Test):
    test_max = 2 * TEST_MAX
    METHODS = {"data_parallel": {"data_parallel": {}}, "local_sgd": {"local_sgd": {"local_steps": 4}},
               "async_sgd": {"async_sgd": {}}}

    def test_a_worker_that_is_killed_costs_the_others_a_lease(self):
        for name, method in self.METHODS.items():
            with self.case(name):
                cluster = Cluster(self, endless(workers=3, method=method))
                cluster.await_step(20)
                cluster.await_status("all have told of exchanges", lambda s: len(s["members"]) == 3 and all(
                    int(m["progress"].get("traffic", {}).get("exchanges", 0)) > 0 for m in s["members"]))
                victim = cluster.workers[1]
                victim.kill()
                status = cluster.await_status("a worker is lost", lost)
                self.assertEqual([m["rank"] for m in members(status, "lost")], [1])
                cluster.await_further()
                cluster.drain()
                report = cluster.finish(victim)
                self.assertEqual((report["members"]["joined"], report["members"]["lost"]), (3, 1))
                self.assertEqual(report["outcome"], "stopped")
                self.assertEqual(report["history"][-1]["step"], report["steps"])
                self.assertIn("lease expired worker=1", cluster.servers[0].output())
                # What it has done counts as far as it told.
                traffic = report["traffic"]
                self.assertEqual([w["worker"] for w in traffic["by_worker"]], [0, 2])
                self.assertEqual({w["worker"]: str(w["member"]) for w in report["phases"]},
                                 {m["rank"]: m["member"] for m in status["members"] if m["rank"] != 1})
                peaks = report["memory"]["worker_peak_rss_bytes"]
                self.assertEqual([peak is None for peak in peaks], [False, True, False])
                self.assertGreater(traffic["exchanges"], sum(w["exchanges"] for w in traffic["by_worker"]))
                self.assertGreaterEqual(report["examples"], report["parameter_examples"])

    def test_status_names_the_worker_that_the_others_wait_for(self):
        cluster = Cluster(self, digits(epochs=ENDLESS, lease="20s", workers=2))
        cluster.await_step(20)
        cluster.workers[1].freeze()
        cluster.await_status("it is named", lambda status: status.get("waiting_for") == ["worker 1"])
        cluster.workers[1].thaw()
        cluster.await_further()
        cluster.drain()
        self.assertEqual(cluster.finish()["members"]["lost"], 0)

    def test_a_frozen_worker_is_removed_and_ends_when_it_thaws(self):
        for name, method in self.METHODS.items():
            with self.case(name):
                cluster = Cluster(self, endless(workers=2, method=method))
                cluster.await_step(20)
                frozen = cluster.workers[1]
                frozen.freeze()
                cluster.await_status("a worker is lost", lost)
                cluster.await_further()
                frozen.thaw()
                output = frozen.expect_exit(1)
                self.assertIn(ENDED, output)
                # Told so, or by itself: a renewal that was under way when it was frozen is late.
                if "not reached for" not in output:
                    self.contains(output, "worker 1", "no longer a member", "lease")
                self.assertIn("lease expired worker=1", cluster.servers[0].output())
                cluster.await_further()
                cluster.drain()
                self.assertEqual(cluster.finish(frozen)["members"]["lost"], 1)

    def test_a_worker_that_keeps_its_lease_and_trains_no_more_is_removed_and_ends(self):
        for name, method in self.METHODS.items():
            with self.case(name):
                cluster = Cluster(self, endless(workers=2, method=method), workers=1)
                hanging = cluster.start_worker(1, env={"TESSERA_FAILPOINTS": "worker.step@60=sleep:600000"})
                # It has ten times as long as its longest step, which may be some seconds on a busy machine.
                cluster.await_status("it is lost", lambda status: lost(status) == 1, within=90)
                cluster.await_further()
                self.contains(cluster.servers[0].output(), "training stands worker=1 step=59")
                self.assertNotIn("lease expired", cluster.servers[0].output())
                self.contains(hanging.expect_exit(1), "it kept its lease, but its training stood still",
                              "after step 59", "its train loop has not come back")
                cluster.drain()
                report = cluster.finish(hanging)
                self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))

    def test_a_late_worker_takes_part_from_mid_run_on(self):
        for name, method in self.METHODS.items():
            with self.case(name):
                cluster = Cluster(self, endless(workers=2, method=method))
                cluster.await_step(20)
                late = cluster.start_worker()
                cluster.await_status("three train", lambda status: len(members(status, "training")) == 3)
                cluster.await_further()
                cluster.drain()
                report = cluster.finish()
                self.assertEqual((report["members"]["joined"], report["members"]["lost"]), (3, 0))
                self.assertIn("joined rank=2", late.output())
                self.assertGreater(report["traffic"]["by_worker"][2]["exchanges"], 0)

    def test_a_late_worker_is_part_of_the_evaluations(self):
        cluster = Cluster(self, endless(workers=1, evaluate_every=1))
        cluster.await_step(20)
        cluster.start_worker()
        cluster.await_status("two train", lambda s: len(members(s, "training") + members(s, "evaluating")) == 2)
        before = len(cluster.status().get("history", []))
        cluster.await_status("three more evaluations", lambda s: len(s.get("history", [])) >= before + 3)
        cluster.drain()
        self.assertGreater(cluster.finish()["final"]["test_accuracy"], 0.5)

    def test_a_restarted_worker_is_a_new_member_with_the_old_rank(self):
        cluster = Cluster(self, endless(workers=2))
        cluster.await_step(20)
        killed = cluster.workers[1]
        killed.kill()
        cluster.await_status("a worker is lost", lost)
        again = cluster.start_worker(1)
        status = cluster.await_status("two train", lambda status: len(members(status, "training")) == 2)
        self.assertGreater(int(members(status, "training")[-1]["member"]), 2)
        cluster.await_further()
        cluster.drain()
        report = cluster.finish(killed)
        self.assertEqual((report["members"]["joined"], report["members"]["lost"]), (3, 1))
        self.assertIn("joined rank=1", again.output())

    def test_the_rank_of_a_killed_worker_is_held_for_its_lease(self):
        cluster = Cluster(self, digits(epochs=ENDLESS, lease="60s"))
        cluster.await_step(20)
        cluster.workers[1].kill()
        self.contains(cluster.start_worker(1).expect_exit(1), "rank 1 is held by", "lease of 1m")

    def test_a_worker_that_is_asked_to_leave_leaves_without_loss(self):
        for numbers in ((signal.SIGTERM,), (signal.SIGINT,), (signal.SIGHUP,), (signal.SIGTERM, signal.SIGINT)):
            with self.case([number.name for number in numbers]):
                cluster = Cluster(self, endless(workers=2))
                cluster.await_step(20)
                leaver = cluster.workers[1]
                for number in numbers:
                    leaver.signal(number)
                self.contains(leaver.expect_exit(0), *LEFT)
                cluster.await_further()
                cluster.drain()
                report = cluster.finish()
                self.assertEqual((report["members"]["joined"], report["members"]["lost"]), (2, 0))
                self.assertEqual(len(report["traffic"]["by_worker"]), 2)

    def test_the_job_fails_when_the_last_worker_is_lost(self):
        cluster = Cluster(self, endless(workers=2))
        cluster.await_step(20)
        for worker in cluster.workers:
            worker.kill()
        for server in cluster.servers:
            server.expect_exit(1)
        self.assertIn("all workers are gone", cluster.servers[0].output())
        report = cluster.report()
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("failed", 2))

    def test_a_job_that_diverges_fails_and_says_so(self):
        cluster = Cluster(self, digits(epochs=ENDLESS, rate=1e6, norm=False, lease="10s"))
        for process in cluster.workers + cluster.servers:
            process.expect_exit(1)
        self.assertTrue(any("is not finite; the training diverged" in worker.output() for worker in cluster.workers),
                        cluster.logs())
        report = cluster.report()
        self.assertEqual(report["outcome"], "failed")
        self.assertGreater(report["refused_pushes"], 0)
        # The same job, with another rate.
        tamed = run_to_end(self, digits(epochs=3, rate=0.01, norm=False, lease="10s"))
        self.assertEqual((tamed["outcome"], tamed["refused_pushes"]), ("finished", 0))

    def test_a_worker_lost_in_an_evaluation_does_not_hold_it_up(self):
        cluster = Cluster(self, endless(workers=3, evaluate_every=1, servers=1))
        for worker in cluster.workers[1:]:
            cluster.await_further(10)
            worker.kill()
        cluster.await_status("two are lost", lambda status: lost(status) == 2)
        before = len(cluster.status().get("history", []))
        cluster.await_status("evaluations go on", lambda s: len(s.get("history", [])) >= before + 2)
        cluster.drain()
        cluster.finish(*cluster.workers[1:])


class ServerFaults(Test):
    def assert_all_end(self, cluster, *killed, within=SOON):
        """Everybody else ends with 1."""
        for process in cluster.servers + cluster.workers:
            if process not in killed:
                process.expect_exit(1, within)

    def test_a_killed_server_ends_the_job_and_is_named(self):
        cluster = Cluster(self, endless(servers=3, workers=2))
        cluster.await_step(20)
        cluster.servers[1].kill()
        self.assert_all_end(cluster, cluster.servers[1])
        self.contains(cluster.servers[0].output(), "server 1 is gone", "start the job again")
        self.contains(cluster.servers[2].output(), "server: ended rank=2")
        for worker in cluster.workers:
            self.assertIn("server 1", worker.output())
        self.assertEqual(cluster.report()["outcome"], "failed")
        self.assertIn("server 1 is gone", cluster.report()["failure"])

    def test_a_frozen_server_ends_the_job_after_its_lease(self):
        cluster = Cluster(self, endless(servers=2, workers=2))
        cluster.await_step(20)
        cluster.servers[1].freeze()
        self.assert_all_end(cluster, cluster.servers[1])
        self.assertIn("server 1 is gone", cluster.servers[0].output())
        cluster.servers[1].thaw()
        cluster.servers[1].expect_exit(1)

    def test_without_the_coordinator_everybody_ends_and_names_it(self):
        for how in ("kill", "freeze"):
            with self.case(how):
                cluster = Cluster(self, endless(servers=2, workers=2))
                cluster.await_step(20)
                getattr(cluster.servers[0], how)()
                self.assert_all_end(cluster, cluster.servers[0])
                for process in cluster.servers[1:] + cluster.workers:
                    self.assertIn("oordinator at %s" % cluster.coordinator, process.output())

    def test_a_restarted_server_is_refused_because_its_parameters_are_gone(self):
        cluster = Cluster(self, digits(epochs=ENDLESS, lease="20s"))
        cluster.await_step(20)
        cluster.servers[1].kill()
        cluster.servers[1].exit_code()
        # Not the worker that cannot push to it.
        status = cluster.await_status("it is named, and no worker", lambda s: "server 1" in str(s.get("waiting_for")))
        self.assertRegex(str(status["waiting_for"]),
                         r"^\['server 1 \(connection lost [0-9.a-z]+ ago, lease ends in [0-9]+s\)'\]$")
        again = cluster.start_server(1)
        self.contains(again.expect_exit(1), "server 1 is gone", "it was restarted", "start the job again")
        self.assert_all_end(cluster, cluster.servers[1])

    def test_a_drained_server_evaluates_and_reports(self):
        for rank in (0, 1):
            with self.case("server %d" % rank):
                cluster = Cluster(self, endless(servers=2, workers=2))
                cluster.await_step(20)
                cluster.servers[rank].signal(signal.SIGTERM)
                report = cluster.finish()
                self.assertEqual(report["outcome"], "stopped")
                self.assertEqual(report["history"][-1]["step"], report["steps"])
                self.assertIn("draining the job", cluster.servers[rank].output())
                if rank == 1:
                    self.contains(cluster.servers[rank].output(), "the parameters of rank 1", "MiB, would be lost")

    def test_a_job_is_drained_or_stopped_by_a_command(self):
        cluster = Cluster(self, endless(servers=2, workers=2))
        cluster.await_step(20)
        code, _, error = tessera("drain", cluster.servers[1].address)
        self.assertEqual(code, 1)
        self.assertIn("only server 0 ends the job", error)
        code, out, _ = tessera("drain", cluster.coordinator)
        self.assertEqual((code, out), (0, "the job drains: it finishes its exchange, evaluates and ends\n"))
        report = cluster.finish()
        self.assertEqual(report["history"][-1]["step"], report["steps"])

        cluster = Cluster(self, endless(servers=1, workers=1))
        cluster.await_step(20)
        self.assertEqual(tessera("stop", cluster.coordinator, "--reason", "too slow", "--quiet")[:2], (0, ""))
        for process in cluster.servers + cluster.workers:
            self.contains(process.expect_exit(1), "stopped: too slow")
        code, _, error = tessera("stop", cluster.coordinator)
        self.assertEqual(code, 1)
        self.assertIn("no stop of the job at", error)
        self.assertEqual(tessera("drain", "nonsense")[0], 2)

    def test_a_server_asks_for_the_drain_again_where_the_coordinator_takes_long_to_answer(self):
        cluster = Cluster(self, digits(epochs=ENDLESS, lease="30s"))
        cluster.await_step(20)
        cluster.servers[0].freeze()
        cluster.servers[1].signal(signal.SIGTERM)
        cluster.servers[1].await_output("draining the job")
        # Longer than it waits for one answer.
        time.sleep(3)
        cluster.servers[0].thaw()
        self.assertEqual(cluster.finish()["outcome"], "stopped")
        self.assertIn("server 1 was asked to end", cluster.servers[0].output())

    def test_a_job_that_has_not_begun_can_be_drained(self):
        cluster = Cluster(self, endless(servers=1, workers=2), workers=1)
        cluster.workers[0].await_output("waiting for worker 1")
        cluster.drain()
        cluster.servers[0].expect_exit(1)
        self.assertIn("drained before it had started", cluster.servers[0].output())
        cluster.workers[0].expect_exit(1)


if __name__ == "__main__":
    unittest.main()
