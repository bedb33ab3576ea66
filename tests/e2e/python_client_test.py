"""The Python example is a full worker: nothing but the wire contract stands between."""
import os
import re
import sys
import unittest

from cluster import DIGITS, JOBS, ROOT, Cluster, Process, Test, digits, tessera

CLIENT = os.path.join(ROOT, "deploy/examples/python_client.py")


class PythonClient(Test):
    def client(self, cluster, *extra):
        digest = re.search(r"^# digest +(\S+)", tessera("check", cluster.path)[1], re.M).group(1)
        return Process(self, "python worker", [sys.executable, CLIENT, cluster.coordinator, "--digest", digest,
                                               "--data", DIGITS, "--proto-root", ROOT, *extra])

    def cluster(self):
        cluster = Cluster(self, digits(servers=2, workers=1), start=False)
        cluster.path = os.path.join(JOBS, "digits_linear.yaml")
        for rank in range(2):
            cluster.start_server(rank)
        return cluster

    def test_it_trains_the_linear_digits_alone(self):
        cluster = self.cluster()
        output = self.client(cluster).expect_exit(0)
        accuracy = float(re.search(r"test accuracy ([0-9.]+)", output).group(1))
        self.assertGreaterEqual(accuracy, 0.9)
        report = cluster.finish()
        self.assertEqual((report["outcome"], report["steps"]), ("finished", 800))
        self.assertEqual(report["members"], {"joined": 1, "lost": 0, "partial_pushes": 0})

    def test_another_digest_is_refused(self):
        cluster = self.cluster()
        client = self.client(cluster, "--digest", "0" * 64)
        self.assertNotEqual(client.exit_code(), 0)
        self.assertIn("start it with the same job file", client.output())


if __name__ == "__main__":
    unittest.main()
