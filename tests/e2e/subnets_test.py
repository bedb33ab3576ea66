"""Independent subnets with real processes: what is moved, who is waited for, and that it learns."""
import unittest

from cluster import DIGITS_ROWS, ENDLESS, Cluster, Test, digits, lost, members, run_to_end

HIDDEN = (41, 37)


def subnets(method, hidden=HIDDEN, **keys):
    job = digits(method=method, batch=16, rate=0.1, **keys)
    layers = []
    for units in hidden:
        layers += [{"linear": {"units": units, "bias": False}}, "batch_norm", "relu"]
    job["model"]["layers"] = layers + [{"linear": {"units": 10, "bias": False}}, {"batch_norm": {"affine": False}}]
    return job


def round_floats(hidden, sites):
    """What all sites together fetch, and return, in one round: an upper and a lower bound where parts differ by one."""
    def total(parts):
        size = 0
        for part in parts:
            widths = [64] + part + [10]
            size += sum(a * b for a, b in zip(widths, widths[1:])) + 2 * sum(part)
        return size
    return total([[width * (site + 1) // sites - width * site // sites for width in hidden] for site in range(sites)])


class Subnets(Test):
    def check(self, report, rounds, floats):
        self.assertEqual((report["outcome"], report["rounds"], report["refused_pushes"]), ("finished", rounds, 0))
        traffic = report["traffic"]
        # Every round's subnets are fetched once and returned once, and nothing else is.
        self.assertEqual(traffic["push_payload_bytes"], 4 * rounds * floats)
        self.assertEqual(traffic["pull_payload_bytes"], 4 * rounds * floats)

    def test_the_traffic_is_the_formula_and_it_learns(self):
        for hidden in ((41,), HIDDEN, (60, 41, 60)):
            for workers in (1, 2, 3):
                with self.subTest(hidden=hidden, workers=workers):
                    job = subnets({"ist": {"local_steps": 7}}, hidden, workers=workers, epochs=16)
                    report = run_to_end(self, job)
                    steps = 16 * (DIGITS_ROWS // (16 * workers))
                    self.assertEqual(report["steps"], steps)
                    self.check(report, -(-steps // 7), round_floats(hidden, workers))
                    self.assertGreaterEqual(report["final"]["test_accuracy"], 0.85)

    def test_an_ensemble_is_one_round(self):
        report = run_to_end(self, subnets({"ensemble": {}}, workers=2, epochs=16))
        self.check(report, 1, round_floats(HIDDEN, 2))
        self.assertGreaterEqual(report["final"]["test_accuracy"], 0.7)

    def test_a_killed_worker_costs_the_others_a_lease_and_its_neurons_are_dealt_anew(self):
        job = subnets({"ist": {"local_steps": 7}}, workers=3, epochs=ENDLESS, lease="3s")
        cluster = Cluster(self, job)
        cluster.await_step(50)
        victim = cluster.workers[1]
        victim.kill()
        cluster.await_status("a worker is lost", lost)
        cluster.await_further(100)
        cluster.drain()
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))
        self.assertGreaterEqual(report["final"]["test_accuracy"], 0.8)

    def test_a_late_worker_gets_a_part_of_its_own(self):
        cluster = Cluster(self, subnets({"ist": {"local_steps": 7}}, workers=2, epochs=ENDLESS))
        cluster.await_step(50)
        late = cluster.start_worker()
        cluster.await_status("three train", lambda status: len(members(status, "training")) == 3)
        cluster.await_further(100)
        cluster.drain()
        report = cluster.finish()
        self.assertEqual((report["outcome"], report["members"]["joined"], report["members"]["lost"]),
                         ("stopped", 3, 0))
        self.assertIn("joined rank=2", late.output())
        self.assertGreater(report["traffic"]["by_worker"][2]["exchanges"], 0)

    def test_nobody_can_join_an_ensemble_that_has_begun(self):
        cluster = Cluster(self, subnets({"ensemble": {}}, workers=1, epochs=3000))
        cluster.await_step(20)
        late = cluster.start_worker()
        self.contains(late.expect_exit(1), "shares the model out")


if __name__ == "__main__":
    unittest.main()
