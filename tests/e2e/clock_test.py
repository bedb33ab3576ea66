"""The clock of the day is set forward or back in mid-job, as a person, a time server or a VM's host does it."""
import os
import struct
import time
import unittest

from cluster import ENDLESS, ROOT, Cluster, Test, digits, lost

# Long enough for a machine that is busy with other tests.
LEASE = 3.0
HOUR = 3600
METHODS = {"data_parallel": {"data_parallel": {}},
           "async_sgd": {"async_sgd": {}},
           # Its grace is a time at which a server has to wake up by itself.
           "diloco quorum": {"diloco": {"local_steps": 2, "quorum": {"pushes": 2, "grace": "20ms"}}}}


class ClockFaults(Test):
    test_max = 240

    def set_clock(self, seconds):
        with open(self.path("shift"), "r+b") as file:
            file.write(struct.pack("<q", seconds))

    def shifted(self, job):
        """A cluster whose clock of the day set_clock sets."""
        with open(self.path("shift"), "wb") as file:
            file.write(struct.pack("<q", 0))
        names = {"LD_PRELOAD": os.path.join(ROOT, "tests/e2e/libshifted_clock.so"),
                 "SHIFTED_CLOCK": self.path("shift")}
        os.environ.update(names)
        try:
            return Cluster(self, job)
        finally:
            for name in names:
                del os.environ[name]

    def test_nobody_is_lost_when_the_clock_is_set_forward_or_back_by_an_hour(self):
        for name, method in METHODS.items():
            for seconds in (HOUR, -HOUR):
                with self.case("%s %d" % (name, seconds)):
                    cluster = self.shifted(digits(epochs=ENDLESS, batch=16, rate=0.05, method=method,
                                                  lease="%dms" % (1000 * LEASE)))
                    cluster.await_step(20)
                    self.set_clock(seconds)
                    end = time.monotonic() + 2.5 * LEASE
                    while time.monotonic() < end:
                        cluster.await_further(5)
                    self.assertEqual(lost(cluster.status()), 0)
                    cluster.drain()
                    report = cluster.finish()
                    self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))
                    # Neither an hour more nor less.
                    wall = report["wall_seconds"]
                    self.assertTrue(0 < report["train_seconds"] <= wall < HOUR / 4, wall)
                    for process in cluster.servers + cluster.workers:
                        self.assertNotIn("lease expired", process.output())


if __name__ == "__main__":
    unittest.main()
