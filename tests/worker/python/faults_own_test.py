"""Workers that die, freeze, come late or come back: tessera-worker's tests, with programs of one's own."""
import functools
import unittest

import cluster
import faults_test
from own_workers import DIGITS, OwnCluster


class ProgramCluster(OwnCluster):
    """A cluster all of whose workers are the NumPy example."""

    def start_worker(self, rank=None, *extra, path=None, env=None, coordinator=None):
        flags = ["--data", DIGITS, "--learning-rate", "0.05"]
        if coordinator is not None:
            flags += ["--coordinator", coordinator]
        environment = dict({"TESSERA_LOG_LEVEL": "info"}, **(env or {}))
        return self.start_own(rank, "example_digits", *flags, *extra, env=environment)


faults_test.Cluster = ProgramCluster
# Statistics of a batch norm are no tensors of the job.
faults_test.digits = functools.partial(cluster.digits, norm=False)
# What a program prints that is no member any more.
faults_test.ENDED = "tessera.errors."
faults_test.LEFT = ("received, leaving; again to end at once", "digits: test accuracy")

WorkerFaults = faults_test.WorkerFaults
ServerFaults = faults_test.ServerFaults

if __name__ == "__main__":
    unittest.main()
