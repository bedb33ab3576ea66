"""Workers that die, freeze, come late or are slow where members advance on their own."""
import unittest

from cluster import ENDLESS, Brake, Cluster, Test, digits, lost, members, tessera

SSP = {"ssp": {"bound": 1}}
QUORUM = {"diloco": {"local_steps": 4, "quorum": {"pushes": 1, "grace": "50ms"}}}
ADAPTIVE = {"diloco": {"local_steps": 4, "quorum": {"pushes": 1, "adaptive_grace": True}, "overlap": True}}
SOFTSYNC = {"softsync": {"pushes": 2, "staleness": {"inverse": {"scale": 1.0}}}}
ASYNC_DILOCO = {"diloco": {"local_steps": 20, "asynchronous": True}}


# Long enough for a machine that is busy with other tests.
LEASE = "4s"


def endless(method, lease=LEASE, **keys):
    return digits(epochs=ENDLESS, batch=16, rate=0.05, method=method, lease=lease, **keys)


class MethodFaults(Test):
    test_max = 240
    METHODS = {"ssp": SSP, "diloco quorum": QUORUM, "diloco quorum beside training": ADAPTIVE, "softsync": SOFTSYNC}

    def check_end(self, report, joined, lost_workers):
        # Those that have no end are drained.
        outcome = "finished" if report["steps"] == report["planned_steps"] else "stopped"
        self.assertEqual((report["outcome"], report["members"]["joined"], report["members"]["lost"]),
                         (outcome, joined, lost_workers))
        self.assertEqual(report["history"][-1]["step"], report["steps"])
        self.assertEqual(report["refused_pushes"], 0)

    def test_a_job_with_an_end_reaches_it_without_a_worker_that_was_killed(self):
        for name, method in self.METHODS.items():
            with self.case(name):
                steps = 3000
                job = digits(steps=steps, batch=16, rate=0.05, method=method, lease=LEASE, workers=3)
                cluster = Cluster(self, job)
                cluster.await_step(20)
                victim = cluster.workers[1]
                victim.kill()
                report = cluster.finish(victim, within=60)
                self.check_end(report, 3, 1)
                self.assertEqual(report["steps"], steps)
                self.assertGreater(report["final"]["test_accuracy"], 0.8)
                self.assertIn("lease expired worker=1", cluster.servers[0].output())

    def test_who_waits_for_nobody_trains_on_while_a_killed_worker_has_its_lease(self):
        methods = {"diloco quorum": QUORUM, "diloco quorum beside training": ADAPTIVE, "softsync": SOFTSYNC,
                   "async_sgd": {"async_sgd": {}}, "diloco asynchronous": ASYNC_DILOCO}
        for name, method in methods.items():
            with self.case(name):
                cluster = Cluster(self, endless(method, lease="60s", workers=3))
                cluster.await_step(20)
                cluster.workers[1].kill()
                cluster.await_further(40)
                cluster.await_further(40)
                self.assertEqual(lost(cluster.status()), 0)

    def test_ssp_waits_for_a_frozen_worker_and_names_it(self):
        cluster = Cluster(self, endless(SSP, lease="60s"))
        cluster.await_step(20)
        cluster.workers[1].freeze()
        cluster.await_status("it is named, and its peer's pulls wait", lambda s: int(s["parked_pulls"]) > 0 and
                             s.get("waiting_for") == ["worker 1"])
        cluster.await_status("its peer stands, though it is heard", lambda s: all(
            m["rank"] != 0 or m["progress_age_seconds"] > 2 > m["lease_age_seconds"] for m in s["members"]))
        # On both servers, or on one where it was frozen between the two.
        self.assertRegex(tessera("status", cluster.coordinator)[1],
                         r"\nwaits for worker 1\n(.*\n)*[12] pulls? waits?\n")
        cluster.workers[1].thaw()
        cluster.await_further()
        cluster.drain()
        self.check_end(cluster.finish(), 2, 0)

    def test_a_late_worker_takes_part_from_mid_run_on(self):
        for name, method in dict(self.METHODS, **{"diloco asynchronous": ASYNC_DILOCO}).items():
            with self.case(name):
                cluster = Cluster(self, endless(method, lease="10s"))
                cluster.await_step(20)
                late = cluster.start_worker()
                cluster.await_status("three train", lambda status: len(members(status, "training")) == 3)
                cluster.await_further()
                cluster.drain()
                report = cluster.finish()
                self.check_end(report, 3, 0)
                self.assertIn("joined rank=2", late.output())
                self.assertGreater(report["traffic"]["by_worker"][2]["exchanges"], 0)

    def test_evaluations_come_although_one_worker_is_much_slower(self):
        for name, method in dict(self.METHODS, **{"diloco asynchronous": ASYNC_DILOCO}).items():
            with self.case(name):
                # Pauses go on while the brake holds the worker, which would hardly be slower then.
                cluster = Cluster(self, endless(method, lease="10s", evaluate_every=1), pause=0)
                cluster.await_step(20)
                brake = Brake(cluster.workers[1], cluster.workers[0], times=5)
                before = len(cluster.status().get("history", []))
                cluster.await_status("three more evaluations", lambda s: len(s.get("history", [])) >= before + 3,
                                     within=60)
                brake.release()
                cluster.drain()
                report = cluster.finish()
                self.check_end(report, 2, 0)
                # Each at the first exchange after its epoch.
                epochs = [int(entry["epoch"]) for entry in report["history"][:-1]]
                self.assertEqual(epochs, list(range(1, len(epochs) + 1)))

    def test_an_evaluation_names_the_worker_that_it_waits_for(self):
        cluster = Cluster(self, endless(SOFTSYNC, lease="60s", evaluate_every=1))
        cluster.await_step(20)
        for attempt in range(10):
            cluster.workers[1].freeze()
            cluster.await_status("it is named", lambda s: s.get("waiting_for") == ["worker 1"])
            try:
                cluster.await_status("its peer rests", lambda s: int(s["resting"]) == 1, within=3)
                break
            except AssertionError:
                # It was frozen in an evaluation, when nobody rested any more, or both did.
                self.assertLess(attempt, 9)
                cluster.workers[1].thaw()
                cluster.await_further(1)
        self.contains(tessera("status", cluster.coordinator)[1], "waits for worker 1", "1 worker rests")
        cluster.workers[1].thaw()
        cluster.await_further()
        cluster.drain()
        self.check_end(cluster.finish(), 2, 0)

    def test_a_slow_worker_is_given_fewer_steps_in_asynchronous_diloco(self):
        # Pauses go on while the brake holds the worker, which would hardly be slower then.
        cluster = Cluster(self, endless(ASYNC_DILOCO, lease="10s"), pause=0)
        cluster.await_step(20)

        def by_rank(status):
            return sorted(status["members"], key=lambda m: m["rank"])

        def budgets(status):
            return [int(m["step_budget"]) for m in by_rank(status)]

        brake = Brake(cluster.workers[1], cluster.workers[0], times=5)
        # The fastest has all of them.
        status = cluster.await_status("it has fewer", lambda s: 0 < budgets(s)[1] <= 15 and budgets(s)[0] == 20)
        brake.release()
        speeds = [m["progress"]["steps_per_second"] for m in by_rank(status)]
        self.assertLess(speeds[1], speeds[0])
        self.contains(tessera("status", cluster.coordinator)[1], "steps/s", "budget", "staleness mean")
        cluster.drain()
        self.check_end(cluster.finish(), 2, 0)


if __name__ == "__main__":
    unittest.main()
