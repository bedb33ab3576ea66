"""`tessera run` and the other commands: what is wrong is said before anything starts."""
import time
import unittest

from authority import Authority
from cluster import ENDLESS, PATIENCE, Test, digits, tessera, write_job


class Refusals(Test):
    """What is wrong is said before anything starts, with exit code 2."""

    def refused(self, *arguments, says=()):
        code, out, error = tessera(*arguments, within=20)
        self.assertEqual(code, 2, error)
        self.contains(error, *says)
        return error

    def test_wrong_flags_and_commands_are_refused(self):
        job = write_job(self, digits())
        self.refused(says=["subcommand"])
        self.refused("train", job, says=["tessera: ", '"train"', "tessera --help"])
        for word in ("bogus", "pause"):
            self.refused(word, "--help", says=["tessera: unknown subcommand \"%s\"" % word])
        self.refused("chek", job, says=['did you mean "check"?'])
        self.refused("run", says=["JOB"])
        self.refused("run", job, "--wrong", says=["tessera run: ", "--wrong"])
        self.refused("run", job, "--repot", "r.json", says=['did you mean "--report"?'])
        self.refused("run", job, job)
        self.refused("status", says=["ADDRESS"])
        self.refused("status", "localhost", says=['"localhost"', "HOST:PORT"])
        self.refused("simulate", says=["JOB"])
        self.refused("simulate", job, "--wrong", says=["--wrong"])

    def test_help_and_version_end_with_0(self):
        for arguments in (["--help"], ["run", "--help"], ["--version"]):
            code, out, error = tessera(*arguments)
            self.assertEqual((code, error), (0, ""))
            self.assertTrue(out)

    def test_every_error_of_a_job_file_is_listed(self):
        job = digits()
        job["train"]["batch_size"] = 0
        job["train"]["epohcs"] = 5
        job["cluster"]["workers"] = "four"
        job["data"]["train"]["features"] = "missing.gz"
        error = self.refused("run", write_job(self, job), says=[
            "train.batch_size", "train.epohcs: unknown key; did you mean \"epochs\"?", "cluster.workers", "missing.gz"])
        self.assertTrue(all(line.startswith(self.path("job.yaml:")) for line in error.splitlines()), error)
        self.assertEqual(self.refused("check", self.path("job.yaml")), error)

    def test_a_missing_job_file_is_refused(self):
        self.refused("run", self.path("none.yaml"), says=["none.yaml"])

    def test_a_report_that_cannot_be_written_is_refused_before_training(self):
        report = self.path("missing/report.json")
        self.refused("run", write_job(self, digits()), "--report", report, says=["--report", report])

    def test_a_report_or_a_folder_without_a_name_is_refused(self):
        job = write_job(self, digits())
        for command, flag in (("run", "--report"), ("run", "--logs"), ("simulate", "--report")):
            self.refused(command, job, flag, "", says=[flag + ": is empty, want a path"])
        for command in ("run", "check", "doctor", "simulate"):
            self.refused(command, "", says=["JOB: is empty, want a path"])
        self.refused("eval", "", job, says=["CKPT: is empty, want a path"])
        self.refused("eval", self.path("checkpoints"), "", says=["JOB: is empty, want a path"])

    def test_a_folder_for_logs_that_cannot_be_written_is_refused(self):
        job = write_job(self, digits())
        # Nobody may make anything in /proc, not even root.
        for logs in ("/proc", "/proc/none"):
            self.refused("run", job, "--logs", logs, says=['--logs: "%s": ' % logs])

    def test_certificates_that_do_not_fit_are_refused_at_once(self):
        certificate, key = Authority(self, "mine").sign("host", "IP:10.0.0.1")
        job = digits(epochs=ENDLESS)
        job["security"] = {"certificate": certificate, "private_key": key, "authority": self.path("mine-ca.pem")}
        begin = time.monotonic()
        code, _, error = tessera("run", write_job(self, job), within=60)
        self.assertEqual(code, 2, error)
        self.contains(error, "Peer name 127.0.0.1 is not in peer certificate", "security.certificate")
        # An attempt and its call; the patience with a machine that is busy is 20 s.
        self.assertLess(time.monotonic() - begin, 15 * PATIENCE)

    def test_a_wrong_set_is_refused(self):
        job = write_job(self, digits())
        self.refused("run", job, "--set", "train.epohcs=1", says=["train.epohcs", "epochs"])
        self.refused("run", job, "--set", "train.epochs", says=["train.epochs"])

    def test_a_method_that_the_model_does_not_fit_is_refused_by_name(self):
        self.refused("run", write_job(self, digits(workers=3, method={"layer_separation": {}})),
                     says=["model.layers", "no convolution", "layer_separation"])

    def test_a_memory_limit_that_is_too_small_is_refused_with_the_sum(self):
        # Servers need 36 MiB, workers 40 MiB and more.
        for limit, who in (("1MiB", "server"), ("39MiB", "worker")):
            with self.case(who):
                path = write_job(self, digits(cluster={"memory_limit": limit}))
                code, _, error = tessera("run", path, "--quiet", within=30)
                self.assertEqual(code, 2)
                self.contains(error, who, "ended with exit code 2", "cluster.memory_limit: is",
                              "but this %s needs" % who, " + ")

    def test_a_worker_does_not_read_more_data_than_it_may_have(self):
        with open(self.path("rows.csv"), "w") as rows:
            rows.write(("1," * 64 + "3\n") * 300000)
        job = digits(cluster={"memory_limit": "50MiB"})
        job["data"] = {"format": "csv", **{part: {"features": self.path("rows.csv")} for part in ("train", "test")}}
        code, _, error = tessera("run", write_job(self, job), "--quiet", within=60)
        self.assertEqual(code, 2)
        self.contains(error, "rows.csv", "of memory", "cluster.memory_limit is all that this worker may take")

    def test_pieces_of_a_minibatch_fit_where_all_of_it_does_not(self):
        def ran(limit, **train):
            job = digits(norm=False, units=1000, batch=1000, steps=2, workers=1, cluster={"memory_limit": limit},
                         **train)
            return tessera("run", write_job(self, job), within=60)

        def need_of(**train):
            code, _, error = ran("39MiB", **train)
            self.assertEqual(code, 2)
            return int(error.split("but this worker needs ")[1].split()[0])

        whole, pieces = need_of(), need_of(micro_batch=64)
        # Activations, their gradients, and rows: at least two arrays of 1000 for each row.
        self.assertGreater(whole - pieces, (1000 - 64) * 1000 * 4 * 2)
        limit = "%dB" % ((whole + pieces) // 2)
        code, _, error = ran(limit)
        self.assertEqual(code, 2)
        self.contains(error, "but this worker needs %d = " % whole)
        code, _, error = ran(limit, micro_batch=64)
        self.assertEqual(code, 0, error)

    def test_data_that_do_not_fit_the_model_are_refused(self):
        job = digits()
        job["model"]["input"] = [65]
        code, _, error = tessera("run", write_job(self, job), within=30)
        self.assertEqual(code, 2)
        self.contains(error, "cannot begin without it", "64", "65")


if __name__ == "__main__":
    unittest.main()
