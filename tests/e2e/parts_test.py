"""Independent subnets whose sizes follow the workers' speeds, with real processes of which one is slow."""
import unittest

from cluster import (ENDLESS, Brake, Cluster, Test, digits, lost, members, train_beside_a_slow_worker, wait_share)


def parts_job(parts, workers=2, lease="10s", **keys):
    """Large enough that a round takes several turns of the brake, and little else than computing: a larger batch
    would have the workers ask for new epochs all the time."""
    job = digits(method={"ist": {"local_steps": 10, "parts": parts}}, workers=workers, batch=64, rate=0.1,
                 epochs=ENDLESS, lease=lease, **keys)
    layers = []
    for units in (1600, 1200):
        layers += [{"linear": {"units": units, "bias": False}}, "batch_norm", "relu"]
    job["model"]["layers"] = layers + [{"linear": {"units": 10, "bias": False}}, {"batch_norm": {"affine": False}}]
    return job


def part(status, rank):
    return next(m["part"] for m in status["members"] if m["rank"] == rank and m["state"] != "lost")


class Parts(Test):
    def test_a_slow_worker_gets_less_to_do_and_the_others_wait_less_for_it(self):
        equal = train_beside_a_slow_worker(self, parts_job("equal"), lambda status: status["train_seconds"] > 2)
        self.doCleanups()
        self.assertEqual(equal["parts"], [])
        by_speed = train_beside_a_slow_worker(self, parts_job("by_speed"), lambda status: part(status, 1) < 0.4)
        parts = by_speed["parts"]
        self.assertEqual([entry["worker"] for entry in parts], [0, 1])
        self.assertAlmostEqual(sum(entry["part"] for entry in parts), 1)
        self.assertIn("slower workers have fewer neurons", by_speed["method_description"])
        self.assertLess(wait_share(by_speed, 0), 0.85 * wait_share(equal, 0))

    def test_parts_survive_a_death_and_somebody_late(self):
        cluster = Cluster(self, parts_job("by_speed", workers=3, lease="4s"), pause=0)
        cluster.await_step(10)
        brake = Brake(cluster.workers[2], cluster.workers[1])
        cluster.await_status("parts have moved apart", lambda status: part(status, 2) < 0.28)
        victim = cluster.workers[0]
        victim.kill()
        status = cluster.await_status("a worker is lost", lost)
        cluster.await_further(40)
        cluster.start_worker()
        cluster.await_status("three train again", lambda status: len(members(status, "training")) == 3)
        cluster.await_further(100)
        status = cluster.status()
        self.assertAlmostEqual(sum(m["part"] for m in status["members"]), 1)
        brake.release()
        cluster.drain()
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["members"]["joined"], report["members"]["lost"]),
                         ("stopped", 4, 1))
        self.assertGreater(report["final"]["test_accuracy"], 0.9)


if __name__ == "__main__":
    unittest.main()
