"""Clusters whose workers are the package's examples."""
import os
import sys

from cluster import DIGITS, ROOT, Cluster, Process, tessera

PACKAGE = os.path.join(ROOT, "worker/python")
sys.path.insert(0, PACKAGE)
from tessera import load_tensors  # noqa: E402


class OwnCluster(Cluster):
    """A cluster of which `start_own` starts workers."""

    def start_own(self, rank, program, *flags, env=None):
        """python3 -m tessera.PROGRAM as worker `rank`."""
        return self.start_script(rank, "-m", "tessera." + program, *flags, env=env)

    def start_script(self, rank, *arguments, env=None):
        """python3 ARGUMENTS as worker `rank`."""
        environment = {"PYTHONPATH": PACKAGE, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
                       "OPENBLAS_NUM_THREADS": "1", "TESSERA_JOB": self.path, "TESSERA_COORDINATOR": self.coordinator}
        if rank is not None:
            environment["TESSERA_RANK"] = str(rank)
        name = "worker %s" % ("any" if rank is None else rank)
        worker = Process(self.test, name, [sys.executable, *arguments], dict(environment, **(env or {})))
        self.workers.append(worker)
        return worker


def train_own(test, job, programs, *flags, env=None, within=60):
    """Trains a job with one worker for each of `programs`, None being tessera-worker; the report."""
    cluster = OwnCluster(test, job, workers=0)
    for rank, program in enumerate(programs):
        if program is None:
            cluster.start_worker(rank)
        else:
            cluster.start_own(rank, program, "--data", DIGITS, *flags, env=env)
    report = cluster.finish(within=within)
    test.assertEqual(report["outcome"], "finished")
    return report


def exported(test, folder):
    """{name: array} of a checkpoint."""
    path = test.path("exported-%d.safetensors" % len(os.listdir(test.folder)))
    code, _, error = tessera("export", folder, path, "--quiet")
    test.assertEqual(code, 0, error)
    return load_tensors(path)


__all__ = ["DIGITS", "OwnCluster", "PACKAGE", "exported", "load_tensors", "train_own"]
