"""What must not change a result: the order of arrival, the number of servers, how a batch is dealt to workers."""
import unittest

from cluster import Test, digits, run_to_end


def final(report):
    return report["final"]["train_loss"], report["final"]["test_loss"]


class SameBits(Test):
    """Synchronous methods give the same parameters, bit for bit, whatever arrives when."""

    METHODS = {"data_parallel": {"data_parallel": {}}, "local_sgd": {"local_sgd": {"local_steps": 7}},
               "diloco": {"diloco": {"local_steps": 7}},
               "state": {"local_sgd": {"local_steps": 7, "average_state": True}}}
    ADAMW = {"adamw": {"learning_rate": 0.005}}

    def job(self, name, **keys):
        job = digits(batch=16, method=self.METHODS[name], **keys)
        if name == "state":
            job["train"]["optimizer"] = self.ADAMW
        return job

    def test_the_same_job_twice_gives_the_same_parameters(self):
        for name in self.METHODS:
            with self.subTest(name):
                job = self.job(name, servers=2, workers=3, epochs=4)
                first, second = run_to_end(self, job), run_to_end(self, job)
                self.assertEqual(first["parameters_hash"], second["parameters_hash"])
                self.assertEqual(final(first), final(second))

    def test_another_seed_gives_other_parameters(self):
        hashes = {run_to_end(self, digits(steps=5, seed=seed))["parameters_hash"] for seed in (1, 2)}
        self.assertEqual(len(hashes), 2)

    def test_the_number_of_servers_does_not_change_the_parameters(self):
        for name in self.METHODS:
            with self.subTest(name):
                # Twelve servers for the ten rows of the last layer: some have none of them.
                hashes = {servers: run_to_end(self, self.job(name, servers=servers, workers=2, epochs=2))
                          ["parameters_hash"] for servers in (1, 2, 5, 12)}
                self.assertEqual(len(set(hashes.values())), 1, hashes)

    def test_optimizers_on_the_servers_do_not_depend_on_their_number(self):
        for optimizer in ({"sgd": {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.001}}, self.ADAMW):
            with self.subTest(next(iter(optimizer))):
                hashes = set()
                for servers in (1, 3):
                    job = digits(servers=servers, epochs=2, schedule={"warmup": 1000})
                    job["train"]["optimizer"] = optimizer
                    hashes.add(run_to_end(self, job)["parameters_hash"])
                self.assertEqual(len(hashes), 1)


class SameTraining(Test):
    """Without batch norm, how rows are dealt to workers changes the rounding only."""

    def one_worker(self):
        return run_to_end(self, digits(servers=1, workers=1, batch=60, steps=50, norm=False))

    def assert_close(self, report, reference):
        self.assertEqual(report["steps"], reference["steps"])
        for got, want in zip(final(report), final(reference)):
            self.assertAlmostEqual(got, want, delta=1e-4)
        # It has learned, so that equality says something.
        self.assertLess(final(report)[1], 1.0)

    def test_workers_with_a_part_of_the_batch_follow_one_with_all_of_it(self):
        reference = self.one_worker()
        for workers in (2, 3, 5):
            with self.subTest(workers=workers):
                job = digits(servers=2, workers=workers, batch=60 // workers, steps=50, norm=False)
                self.assert_close(run_to_end(self, job), reference)

    def test_local_sgd_with_one_local_step_follows_data_parallel(self):
        job = digits(servers=2, workers=3, batch=20, steps=50, norm=False, method={"local_sgd": {"local_steps": 1}})
        self.assert_close(run_to_end(self, job), self.one_worker())

    def test_async_sgd_of_one_worker_follows_data_parallel(self):
        job = digits(servers=2, workers=1, batch=60, steps=50, norm=False, method={"async_sgd": {}})
        self.assert_close(run_to_end(self, job), self.one_worker())


if __name__ == "__main__":
    unittest.main()
