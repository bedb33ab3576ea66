"""Independent subnets that end on the whole model, with real processes."""
import signal
import unittest

from cluster import DIGITS_ROWS, Cluster, Test, digits, job_size, lost, members, run_to_end

HIDDEN = (41, 37)


def tail_job(tail_steps, hidden=HIDDEN, batch=16, **keys):
    job = digits(method={"ist": {"local_steps": 7, "tail_steps": tail_steps}}, batch=batch, rate=0.1, **keys)
    layers = []
    for units in hidden:
        layers += [{"linear": {"units": units, "bias": False}}, "batch_norm", "relu"]
    job["model"]["layers"] = layers + [{"linear": {"units": 10, "bias": False}}, {"batch_norm": {"affine": False}}]
    return job


def round_floats(sites):
    """What all sites together fetch, and return, in one round."""
    size = 0
    for site in range(sites):
        part = [width * (site + 1) // sites - width * site // sites for width in HIDDEN]
        widths = [64] + part + [10]
        size += sum(a * b for a, b in zip(widths, widths[1:])) + 2 * sum(part)
    return size


class Tail(Test):
    def test_the_traffic_is_that_of_the_rounds_and_of_the_tail(self):
        for workers, keys in ((1, {"epochs": 3}), (2, {"epochs": 6, "evaluate_every": 2}), (3, {"steps": 150})):
            with self.subTest(workers=workers):
                job = tail_job(30, workers=workers, **keys)
                report = run_to_end(self, job)
                steps = keys.get("steps") or keys["epochs"] * (DIGITS_ROWS // (16 * workers))
                self.assertEqual((report["outcome"], report["steps"], report["refused_pushes"]),
                                 ("finished", steps, 0))
                # The tail begins where a round ends with at most so many steps left.
                rounds = next(r for r in range(steps) if 0 < steps - 7 * r <= 30)
                tail = -(-(steps - 7 * rounds) // 7)
                self.assertEqual(report["rounds"], rounds + tail)
                self.assertIn("the last 30 steps train the whole model", report["method_description"])
                whole = workers * job_size(job)
                traffic = report["traffic"]
                self.assertEqual(traffic["push_payload_bytes"],
                                 4 * (rounds * round_floats(workers) + tail * whole))
                # The first exchange of the tail begins with a pull of its own kind.
                self.assertEqual(traffic["pull_payload_bytes"],
                                 4 * (rounds * round_floats(workers) + (tail + 1) * whole))
                self.assertGreaterEqual(report["final"]["test_accuracy"], 0.8)

    def test_workers_die_and_join_in_the_tail(self):
        # All but the first round.
        steps = 1000000
        cluster = Cluster(self, tail_job(steps - 7, workers=3, steps=steps, lease="3s"))
        cluster.await_step(50)
        victim = cluster.workers[1]
        victim.kill()
        cluster.await_status("a worker is lost", lost)
        cluster.await_further(50)
        late = cluster.start_worker()
        cluster.await_status("three train again", lambda status: len(members(status, "training")) == 3)
        cluster.await_further(50)
        cluster.drain()
        report = cluster.finish(victim)
        self.assertIn("joined rank=1", late.output())
        self.assertEqual((report["outcome"], report["members"]["joined"], report["members"]["lost"]),
                         ("stopped", 4, 1))
        self.assertGreaterEqual(report["final"]["test_accuracy"], 0.8)
        # The late one never had a subnet.
        whole = 4 * job_size(cluster.job)
        last = report["traffic"]["by_worker"][1]
        self.assertEqual(last["push_payload_bytes"], whole * last["exchanges"])
        self.assertEqual(last["pull_payload_bytes"], whole * (last["exchanges"] + 1))

    def test_a_worker_that_dies_about_when_the_tail_begins_costs_the_others_a_lease(self):
        # The tail begins at step 28.
        for after in (14, 21, 28):
            with self.case("killed after step %d" % after):
                cluster = Cluster(self, tail_job(32, (1000, 800), 256, workers=3, steps=60, lease="3s"), workers=0)
                victim = cluster.start_worker(0, env={"TESSERA_FAILPOINTS": "worker.step@%d=kill" % (after + 1)})
                for rank in (1, 2):
                    cluster.start_worker(rank)
                victim.expect_exit(-signal.SIGKILL, within=60)
                report = cluster.finish(victim, within=60)
                self.assertEqual((report["outcome"], report["members"]["lost"], report["steps"]), ("finished", 1, 60))
                self.assertGreaterEqual(report["final"]["test_accuracy"], 0.5)


if __name__ == "__main__":
    unittest.main()
