"""Workers that run the code nvcc has made for GPUs, instruction by instruction, in real processes: 50 steps of each
kind of exchange, with the losses and the traffic of the CPU's."""
import os
import unittest

import cluster
from cluster import ROOT, Cluster, Test, digits

WORKER = os.path.join(ROOT, "tests/worker/ptx_gpu_worker")
EVERY = ["SoftmaxRows", "ColumnSums", "ColumnMap"]  # Of what each job must have launched.


class DevicePtx(Test):
    def train(self, job, on_gpu):
        real = cluster.WORKER
        try:
            if on_gpu:
                cluster.WORKER = WORKER
                job = dict(job, cluster=dict(job["cluster"], device="cuda"))
            return Cluster(self, job).finish(within=90)
        finally:
            cluster.WORKER = real

    def test_jobs_move_and_lose_on_nvccs_code_what_they_do_on_the_cpu(self):
        sizes = {"units": 64, "batch": 16, "rate": 0.05, "steps": 50}
        jobs = {
            "data parallel": (digits(**sizes), []),
            "local steps": (digits(method={"local_sgd": {"local_steps": 5}}, **sizes), ["PlainSgdOp"]),
            "overlapped": (digits(method={"diloco": {"local_steps": 5, "overlap": True}}, **sizes), ["PlainSgdOp"]),
            # A layer that is large enough to be coded.
            "quantised": (dict(digits(method={"quant_dp": {}}, **dict(sizes, units=200)),
                               codec={"pull": {"qsgd": {"bits": 8}}}), ["EncodeBuckets", "DecodeBuckets"]),
            "int8 with feedback": (dict(digits(**sizes), codec={"push": "int8", "error_feedback": True, "pull": "f16"}),
                                   ["EncodeBuckets", "DecodePlain"]),
            "subnets": (digits(method={"ist": {"local_steps": 5}}, **sizes), ["PlainSgdOp"]),
            "a core": (digits(method={"slim_dp": {"alpha": 0.3, "beta": 0.15, "core_every": 10}}, **sizes),
                       ["GatherPlaces", "ScatterPlaces"]),
            "thresholds": (digits(method={"decentralized": {"density": 0.05}}, **sizes), ["FindMarks", "ListMarks"]),
        }
        for name, (job, kernels) in jobs.items():
            with self.case(name):
                os.environ["TESSERA_PTX_REPORT"] = self.path("launched-" + name.replace(" ", "-"))
                want, got = self.train(job, False), self.train(job, True)
                for key in ("steps", "rounds", "examples"):
                    self.assertEqual(got[key], want[key], key)
                # Which entries reach a threshold follows from the values' last bits.
                follows = name != "thresholds"
                if follows:
                    for key in ("push_payload_bytes", "pull_payload_bytes", "exchanges"):
                        self.assertEqual(got["traffic"][key], want["traffic"][key], key)
                # And how old pushes are when they come: on CPUs alone such a job ends at 1.04 to 1.08, the lower the
                # less its two workers run at once.
                loss = want["final"]["train_loss"]
                self.assertAlmostEqual(got["final"]["train_loss"], loss, delta=(1e-3 if follows else 0.06) * loss)
                with open(os.environ["TESSERA_PTX_REPORT"], encoding="utf-8") as file:
                    launched = file.read()
                self.assertEqual([kernel for kernel in EVERY + kernels if kernel not in launched], [])


if __name__ == "__main__":
    unittest.main()
