"""Minibatches whose sizes follow the workers' speeds (data.partition: by_speed), with real processes of which one is
slow."""
import unittest

from cluster import (ENDLESS, Brake, Cluster, Test, digits, lost, members, train_beside_a_slow_worker, wait_share)

BATCH = 64


def batches_job(partition, workers=2, lease="10s", **keys):
    """A step is some milliseconds of computing, and exchanges are rare."""
    job = digits(method={"local_sgd": {"local_steps": 10}}, workers=workers, batch=BATCH, rate=0.1, epochs=ENDLESS,
                 lease=lease, partition=partition, **keys)
    layers = []
    for units in (800, 600):
        layers += [{"linear": {"units": units, "bias": False}}, "batch_norm", "relu"]
    job["model"]["layers"] = layers + [{"linear": {"units": 10}}]
    return job


def rows(status):
    """{rank: rows of each minibatch} of the workers that train and are given rows by speed."""
    told = {m["rank"]: int(m["progress"].get("batch_rows", 0)) for m in members(status, "training")}
    return {rank: rows for rank, rows in told.items() if rows > 0}


class Batches(Test):
    def test_a_slow_worker_gets_fewer_rows_and_the_others_wait_less_for_it(self):
        equal = train_beside_a_slow_worker(self, batches_job("global"), lambda status: status["train_seconds"] > 2)
        self.doCleanups()
        self.assertEqual(equal["batches"], [])
        by_speed = train_beside_a_slow_worker(self, batches_job("by_speed"),
                                              lambda status: status["train_seconds"] > 2 and
                                              rows(status).get(1, BATCH) < 0.8 * BATCH)
        self.assertEqual([entry["worker"] for entry in by_speed["batches"]], [0, 1])
        self.assertEqual(sum(entry["rows"] for entry in by_speed["batches"]), 2 * BATCH)
        self.assertIn("slower workers have smaller minibatches", by_speed["method_description"])
        self.assertLess(wait_share(by_speed, 0), 0.85 * wait_share(equal, 0))

    def test_a_slow_worker_does_no_more_when_another_dies_and_a_late_one_gets_its_rows(self):
        cluster = Cluster(self, batches_job("by_speed", workers=3, lease="4s"), pause=0)
        cluster.await_step(10)
        brake = Brake(cluster.workers[2], cluster.workers[1])
        cluster.await_status("sizes have moved apart", lambda status: rows(status).get(2, BATCH) < 0.8 * BATCH)
        victim = cluster.workers[0]
        victim.kill()
        cluster.await_status("a worker is lost", lost)
        status = cluster.await_status("two share a step", lambda status: sum(rows(status).values()) == 2 * BATCH)
        # As before, whether or not their speeds are known at this moment.
        self.assertLess(rows(status)[2], rows(status)[1])
        cluster.start_worker()
        status = cluster.await_status("three share a step", lambda status: sum(rows(status).values()) == 3 * BATCH and
                                      len(rows(status)) == 3)
        cluster.await_further(100)
        brake.release()
        cluster.drain()
        report = cluster.finish(victim)
        self.assertEqual((report["outcome"], report["members"]["joined"], report["members"]["lost"]),
                         ("stopped", 4, 1))
        self.assertGreater(report["final"]["test_accuracy"], 0.9)

    def test_a_job_goes_on_from_a_checkpoint_with_rows_by_speed_and_without(self):
        folder = self.path("checkpoints")
        job = batches_job("by_speed")
        job["checkpoint"] = {"directory": folder, "every_steps": 40}
        cluster = Cluster(self, job, pause=0)
        cluster.await_step(10)
        brake = Brake(cluster.workers[1], cluster.workers[0])
        cluster.await_status("sizes have moved apart", lambda status: rows(status).get(1, BATCH) < 0.8 * BATCH)
        cluster.await_further(200)
        brake.release()
        cluster.drain()
        step = cluster.finish()["steps"]
        for partition in ("by_speed", "global"):
            self.doCleanups()
            job = batches_job(partition)
            job["checkpoint"] = {"directory": folder, "restore": folder}
            cluster = Cluster(self, job, pause=0)
            status = cluster.await_step(step + 20)
            dealt = partition == "by_speed"
            if dealt:
                cluster.await_status("two share a step", lambda status: sum(rows(status).values()) == 2 * BATCH)
            else:
                self.assertEqual(rows(status), {})
            cluster.drain()
            report = cluster.finish()
            self.assertEqual((report["outcome"], len(report["batches"])), ("stopped", 2 if dealt else 0))
            step = report["steps"]


if __name__ == "__main__":
    unittest.main()
