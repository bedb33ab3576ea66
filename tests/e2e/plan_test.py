"""`tessera plan`: what is predicted, and for whom."""
import json
import unittest

from cluster import Test, digits, run_to_end, tessera, write_job

STEPS = 40


class Plan(Test):
    def plan(self, job, *flags, code=0):
        got, out, error = tessera("plan", job if isinstance(job, str) else write_job(self, job), *flags)
        self.assertEqual(got, code, out + error)
        return error if code else out

    def planned(self, job, *flags):
        """method -> prediction."""
        plan = json.loads(self.plan(job, "--step-time", "1ms", "--json", *flags))
        return {row["method"]: row for row in plan["methods"]}

    def test_bytes_that_are_exact_are_those_of_the_report(self):
        job = digits(servers=2, workers=2, units=200, steps=STEPS)
        rows = self.planned(job, "--nodes", "2", "--bandwidth", "1Gbit", "--local-steps", "5")
        for method, keys in (("data_parallel", {}), ("local_sgd", {"local_steps": 5}), ("quant_dp", {}),
                             ("ist", {"local_steps": 5})):
            with self.case(method):
                self.assertTrue(rows[method]["is_exact"])
                traffic = run_to_end(self, dict(job, method={method: keys}))["traffic"]
                self.assertEqual(traffic["exchanges"], 2 * STEPS // rows[method]["local_steps"])
                self.assertEqual(rows[method]["push_bytes"], traffic["push_payload_bytes"] / traffic["exchanges"])
        self.assertFalse(rows["slim_dp"]["is_exact"])

    def test_of_halves_of_the_layers_they_are_the_mean_over_the_workers(self):
        job = digits(servers=2, workers=4, steps=STEPS, method={"layer_separation": {"linear_workers": 2}})
        job["model"] = {"input": [1, 8, 8], "layers": [{"conv2d": {"channels": 8, "kernel": 3}}, "relu",
                                                       {"linear": {"units": 32}}, "relu", {"linear": {"units": 10}}]}
        row = self.planned(job, "--nodes", "4", "--bandwidth", "1Gbit")["layer_separation"]
        self.assertTrue(row["is_exact"])
        self.assertEqual((row["is_own"], row["linear_workers"], row["local_steps"]), (True, 2, 1))
        self.assertIn(row["best_linear_workers"], (1, 2))
        traffic = run_to_end(self, job)["traffic"]
        self.assertEqual(row["push_bytes"], traffic["push_payload_bytes"] / traffic["exchanges"])
        front, linear = traffic["by_worker"][0], traffic["by_worker"][3]
        pulled = [worker["pull_payload_bytes"] / (STEPS + 1) for worker in (front, linear)]
        crossing = 4 * 32 * (2 * 8 * 6 * 6 + 1)
        self.assertEqual(row["front_step_bytes"], front["push_payload_bytes"] / STEPS + pulled[0] + crossing)
        self.assertEqual(row["linear_step_bytes"], linear["push_payload_bytes"] / STEPS + pulled[1] + crossing)
        out = self.plan(job, "--nodes", "4", "--bandwidth", "1Gbit", "--step-time", "1ms").replace("\n    ", " ")
        self.assertIn("* layer_separation(2 linear)", out)
        self.assertIn("layer_separation: 2 workers with the layers in front", out)
        # There is no convolution.
        self.assertIn("not with layer_separation: ", self.plan(digits(), "--nodes", "4", "--bandwidth", "1Gbit",
                                                               "--step-time", "1ms"))

    def test_every_method_has_a_row_and_the_jobs_own_is_marked(self):
        job = digits(method={"diloco": {"local_steps": 7}})
        rows = self.planned(job, "--nodes", "3", "--bandwidth", "100Mbit")
        self.assertEqual([name for name, row in rows.items() if row["is_own"]], ["diloco"])
        self.assertEqual((rows["diloco"]["local_steps"], rows["local_sgd"]["local_steps"]), (7, 20))
        self.assertEqual((rows["decentralized"]["servers"], rows["local_sgd"]["servers"]), (3, 2))
        self.assertIsNone(rows["ensemble"]["local_steps"])
        self.assertGreaterEqual(len(rows), 11)

    def test_what_leaves_no_machine_is_no_traffic(self):
        rows = self.planned(digits(), "--nodes", "3", "--bandwidth", "100Mbit")
        self.assertEqual(rows["decentralized"]["step_bytes"], rows["decentralized"]["push_bytes"])
        self.assertEqual(rows["data_parallel"]["step_bytes"],
                         rows["data_parallel"]["push_bytes"] + rows["data_parallel"]["pull_bytes"])

    def test_a_job_that_is_right_on_those_machines_alone_is_planned(self):
        job = digits(workers=2, method={"softsync": {"pushes": 8}})
        rows = self.planned(job, "--nodes", "64", "--bandwidth", "1Gbit")
        self.assertTrue(rows["softsync"]["is_own"])
        self.assertGreater(rows["softsync"]["step_seconds"], 0)

    def test_too_few_rows_are_too_few_here_as_well(self):
        self.assertIn("training rows are 1347, want at least 64 workers x 32",
                      self.plan(digits(), "--nodes", "64", "--bandwidth", "1Gbit", code=2))

    def test_numbers_beyond_all_measure_are_numbers(self):
        out = self.plan(digits(), "--nodes", "20000", "--bandwidth", "8bit", "--step-time", "1ms")
        self.assertIn(" years ", out)
        self.assertIn('cluster.servers.count: got "20000", want an integer in [1, 256]', out.replace("\n    ", " "))
        rows = self.planned(digits(), "--nodes", "2", "--bandwidth", "0", "--server-rate", "0")
        self.assertGreater(rows["async_sgd"]["rows_per_second"], 0)

    def test_a_threshold_that_is_fixed_is_not_guessed(self):
        job = dict(digits(), codec={"push": {"threshold": {"tau": 0.01}}})
        row = self.planned(job, "--nodes", "2", "--bandwidth", "1Gbit")["data_parallel"]
        self.assertEqual((row["push_bytes"], row["step_seconds"], row["limit"]), (None, None, None))
        self.assertGreater(row["pull_bytes"], 0)

    def test_the_table_fits_a_terminal_and_tells_what_is_refused(self):
        out = self.plan(digits(), "--nodes", "64", "--bandwidth", "10Gbit", "--latency", "200us", "--step-time", "20ms")
        self.assertLessEqual(max(map(len, out.splitlines())), 79, out)
        self.assertIn("64 workers and 2 servers, each on a node of its own; links 10Gbit each way, latency 200us",
                      out.replace("\n", " "))
        self.assertIn("* data_parallel", out)
        # There are 32 hidden neurons.
        self.assertRegex(out.replace("\n", " "), r"not with ist: .*units")

    def test_the_local_steps_that_reach_a_utilisation_are_a_column(self):
        flags = ("--nodes", "4", "--bandwidth", "10Mbit", "--step-time", "1ms", "--utilisation", "0.75")
        out = self.plan(digits(), *flags)
        self.assertIn("steps for 75%", out)
        steps = {row["method"]: row.get("utilising_local_steps") for row in
                 json.loads(self.plan(digits(), *flags, "--json"))["methods"]}
        self.assertGreater(steps["local_sgd"], 1)
        self.assertIsNone(steps["data_parallel"])
        self.assertRegex(out, r"local_sgd\(20\) .* %d  " % steps["local_sgd"])
        self.assertIn("--utilisation", self.plan(digits(), *flags[:-1], "1.5", code=2))

    def test_wrong_flags_are_told_with_the_command(self):
        error = self.plan(digits(), "--nodes", "0", "--bandwidth", "1", "--step-time", "1ms", code=2)
        nodes, bandwidth = error.splitlines()
        self.assertEqual(nodes, 'tessera plan: --nodes: got "0", want a number, 1 to 20000; see tessera plan --help')
        self.assertTrue(bandwidth.startswith('tessera plan: --bandwidth: got "1", want a bandwidth such as '), error)

    def test_with_a_step_time_no_data_are_read(self):
        job = digits()
        job["data"]["directory"] = "/nowhere"
        flags = ["--nodes", "2", "--bandwidth", "1Gbit"]
        self.assertIn("data_parallel", self.plan(job, *flags, "--step-time", "3ms"))
        self.assertIn("/nowhere", self.plan(job, *flags, code=2))

    def test_a_step_is_measured_here_otherwise(self):
        out = self.plan(digits(), "--nodes", "2", "--bandwidth", "1Gbit")
        self.assertIn("as measured on this machine", out.replace("\n", " "))

    def test_everything_that_is_wrong_is_said_at_once(self):
        error = self.plan(digits(), "--nodes", "0", "--bandwidth=-5MB", "--latency", "-1s", "--servers", "1000",
                          "--local-steps", "0", "--step-time", "soon", "--set", "train.epochs=-1", code=2)
        for flag in ("--nodes", "--bandwidth", "--latency", "--servers", "--local-steps", "--step-time",
                     "--set train.epochs"):
            self.assertIn(flag, error)
        self.assertEqual(len(error.splitlines()), 7, error)


if __name__ == "__main__":
    unittest.main()
