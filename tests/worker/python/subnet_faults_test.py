"""Servers and workers that die while programs of one's own train subnets: the job ends with the bits of one that nobody
disturbed, where it goes on from what was committed."""
import json
import os
import unittest

from checkpoint_folders import keeping, steps_in
from cluster import DIGITS, Test, lost
from own_workers import OwnCluster
from subnets_test import GROUPS, PROGRAM, UNITS, initial

from tessera import save_tensors

STEPS = 200


class SubnetFaults(Test):
    test_max = 240

    def job(self, steps=STEPS, **cluster):
        file = self.path("init.safetensors")
        if not os.path.exists(file):
            save_tensors(initial(), file)
        return {"name": "own", "seed": 1, "model": {"tensors": file, "groups": GROUPS},
                "train": {"steps": steps, "steps_per_epoch": 50, "optimizer": {"sgd": {"learning_rate": 0.2}}},
                "method": {"ist": {"local_steps": 5}},
                "cluster": dict({"servers": 2, "workers": 2, "lease_timeout": "4s"}, **cluster)}

    def start(self, job, *flags):
        """A cluster whose workers are the NumPy program, and the files in which they tell what they were told."""
        cluster = OwnCluster(self, job, workers=0)
        records = []
        for rank in range(2):
            records.append(self.path("record-%d-%d" % (len(os.listdir(self.folder)), rank)))
            cluster.start_script(rank, PROGRAM, "--data", DIGITS, "--record", records[-1], *flags)
        return cluster, records

    def undisturbed(self):
        cluster, _ = self.start(self.job())
        report = cluster.finish(within=60)
        self.assertEqual((report["outcome"], report["steps"]), ("finished", STEPS))
        return report

    def read(self, records):
        told = []
        for record in records:
            with open(record) as file:
                told.append(json.load(file))
        return told

    def compare(self, report, wanted, records):
        self.assertEqual((report["outcome"], report["steps"]), ("finished", STEPS))
        self.assertEqual(report["parameters_hash"], wanted["parameters_hash"])
        self.assertEqual(report["final"]["test_loss"], wanted["final"]["test_loss"])
        ours = self.read(records)
        for number in ours[0]["units"]:
            parts = [told["units"][number]["hidden"] for told in ours]
            self.assertEqual(sorted(parts[0] + parts[1]), list(range(UNITS)))
        return ours

    def test_a_server_that_is_killed_and_started_again_takes_the_rounds_back_to_the_checkpoint(self):
        wanted = self.undisturbed()
        folder = self.path("ckpt")
        cluster, records = self.start(keeping(self.job(), folder, 30), "--pause", "0.03")
        cluster.await_status("a checkpoint", lambda status: int(status["checkpoint"]["count"]) > 0)
        cluster.servers[1].kill()
        cluster.await_status("it is waited for", lambda status: status["waiting_for"] == ["server 1"])
        killed = cluster.servers.pop(1)
        cluster.start_server(1)
        report = cluster.finish(killed, within=90)
        self.assertEqual(report["members"]["lost"], 0)
        steps = steps_in(folder)
        for told in self.compare(report, wanted, records):
            # The programs were told by their trainers alone, of the values and of what they had saved.
            self.assertEqual((told["rejoined"], told["lost"], len(told["loaded"])), (1, 0, 1))
            self.assertIn(told["loaded"][0], steps)

    def test_a_standby_takes_over_and_the_programs_notice_nothing(self):
        wanted = self.undisturbed()
        cluster, records = self.start(self.job(replicas=1), "--pause", "0.03")
        cluster.await_step(20)
        cluster.servers[1].kill()
        cluster.await_status("its standby leads", lambda status: int(status["takeovers"]) == 1)
        report = cluster.finish(cluster.servers[1], within=90)
        for told in self.compare(report, wanted, records):
            self.assertEqual((told["rejoined"], told["lost"], told["loaded"]), (0, 0, []))

    def test_a_frozen_program_takes_part_again_by_one_call(self):
        cluster, records = self.start(self.job(steps=600), "--pause", "0.02", "--rejoin")
        cluster.await_step(20)
        cluster.workers[1].freeze()
        cluster.await_status("worker 1 is lost", lambda status: lost(status) == 1)
        cluster.await_further()
        cluster.workers[1].thaw()
        report = cluster.finish(within=90)
        self.assertEqual((report["outcome"], report["steps"], report["members"]["lost"]), ("finished", 600, 1))
        steady, frozen = self.read(records)
        self.assertEqual((steady["lost"], frozen["lost"]), (0, 1))
        last = max(steady["units"], key=int)
        # Alone it had all units, and in the end both have their parts again.
        self.assertIn([0, 1], steady["sites"].values())
        self.assertEqual(sorted(steady["units"][last]["hidden"] + frozen["units"][last]["hidden"]), list(range(UNITS)))


if __name__ == "__main__":
    unittest.main()
