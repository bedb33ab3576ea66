"""What a process finds where it is started: variables that libraries read, limits of threads and files."""
import os
import re
import resource
import unittest

from cluster import (ROOT, SERVER, TESSERA, WORKER, Cluster, Process, Test, digits, run_to_end, tessera, write_job)

REFUSES_TEAMS = {"OMP_THREAD_LIMIT": "1"}
# Each of them alone was wrong arithmetic once, or is near one that was.
OTHERS = {"OMP_DYNAMIC": "true", "OMP_MAX_ACTIVE_LEVELS": "0", "OMP_NESTED": "true", "OMP_NUM_THREADS": "1",
          "OMP_PROC_BIND": "true", "OMP_PLACES": "{0}", "GOMP_SPINCOUNT": "5", "KMP_DEVICE_THREAD_LIMIT": "1",
          "DNNL_DEFAULT_FPMATH_MODE": "BF16", "ONEDNN_CPU_ISA_HINTS": "PREFER_YMM", "LC_ALL": "de_DE.UTF-8",
          "LC_NUMERIC": "de_DE.UTF-8", "MALLOC_PERTURB_": "165"}
LOADER = "/lib64/ld-linux-x86-64.so.2"


def limited(command, kind, amount):
    """A command that starts another under a limit."""
    return ["/bin/sh", "-c", "ulimit -%s %d; exec \"$@\"" % (kind, amount), "sh"] + command


class Variables(Test):
    def test_no_variable_changes_what_is_computed(self):
        job = digits(epochs=2, cluster={"threads": 2})
        keeping = dict(job, checkpoint={"directory": self.path("checkpoints")})
        path = write_job(self, keeping)
        whole = run_to_end(self, keeping)
        self.assertGreater(whole["final"]["test_accuracy"], 0.85)
        scored = tessera("eval", self.path("checkpoints"), path, "--json")
        self.assertEqual(scored[0], 0, scored[2])
        simulate = ["simulate", write_job(self, job), "--step-time", "1ms", "--report"]
        simulated = tessera(*simulate, self.path("simulated.json"))
        self.assertEqual(simulated[0], 0, simulated[2])
        for given in (REFUSES_TEAMS, OTHERS):
            with self.case(" ".join(given)):
                self.assertEqual(run_to_end(self, job, env=given)["parameters_hash"], whole["parameters_hash"])
                self.assertEqual(tessera("eval", self.path("checkpoints"), path, "--json", env=given), scored)
                self.assertEqual(tessera(*simulate, self.path("again.json"), env=given)[0], 0)
                with open(self.path("simulated.json")) as first, open(self.path("again.json")) as second:
                    self.assertEqual(self.parameters(first.read()), self.parameters(second.read()))
                cluster = Cluster(self, job, workers=0)
                for rank in range(2):
                    cluster.start_worker(rank, env=given)
                self.assertEqual(cluster.finish()["parameters_hash"], whole["parameters_hash"])

    def parameters(self, report):
        return re.search(r'"parameters_hash": *"(\w+)"', report)[1]

    @unittest.skipUnless(os.path.exists(LOADER), "another loader")
    def test_a_smaller_team_is_refused_where_the_variables_cannot_be_left_out(self):
        path = write_job(self, digits(cluster={"threads": 2}))
        worker = [LOADER, WORKER, "--job", path, "--coordinator", "127.0.0.1:1"]
        output = Process(self, "worker", worker, env=REFUSES_TEAMS).expect_exit(2)
        self.assertEqual(output, "tessera-worker: cluster.threads: is 2, but OpenMP computes with 1 here; unset "
                                 "OMP_THREAD_LIMIT, or set cluster.threads to 1\n")


class Limits(Test):
    def scarce(self, threads):
        return {"LD_PRELOAD": os.path.join(ROOT, "tests/e2e/libscarce_threads.so"), "SCARCE_THREADS": str(threads)}

    def test_a_start_without_its_threads_is_one_line(self):
        path = write_job(self, digits())
        for threads in (2, 20):
            for name, command in (("run", [TESSERA, "run", path]), ("status", [TESSERA, "status", "127.0.0.1:1"]),
                                  ("doctor", [TESSERA, "doctor", path]),
                                  ("checkpoint", [TESSERA, "checkpoint", "127.0.0.1:1"]),
                                  ("server", [SERVER, "--job", path, "--rank", "0", "--listen", "127.0.0.1:0"]),
                                  ("worker", [WORKER, "--job", path, "--coordinator", "127.0.0.1:1"])):
                with self.case("%s, %d threads" % (name, threads)):
                    output = Process(self, name, command, env=self.scarce(threads)).expect_exit(2)
                    self.assertRegex(output.replace("scarce_threads: refused\n", ""),
                                     r"^tessera(-%s)?: threads: the system gives %d more, want \d+; raise the limit of "
                                     r"processes \(ulimit -u, pids.max of the cgroup\)\n$" % (name, threads - 1))

    def test_threads_that_compute_are_counted(self):
        path = write_job(self, digits(cluster={"threads": 30}))
        for command in (["simulate", path, "--step-time", "1ms"], ["simulate", path]):
            code, _, error = tessera(*command, env=self.scarce(12))
            self.assertEqual(code, 2, error)
            self.contains(error, "cluster.threads: is 30; threads: the system gives ")
        code, out, _ = tessera("doctor", path, env=self.scarce(40))
        self.assertEqual(code, 1)
        self.contains(re.sub(r"\s+", " ", out), "threads: the system gives 39 more, want ",
                      "`tessera run` will not start here before that")

    def test_what_is_asked_for_is_enough(self):
        job = digits(epochs=2, workers=2, cluster={"threads": 2, "replicas": 1})
        job["checkpoint"] = {"directory": self.path("checkpoints"), "every_steps": 20}

        def enough(command):
            """As many as the line says, and the one that is there."""
            output = Process(self, "scarce", command, env=self.scarce(5)).expect_exit(2)
            return self.scarce(1 + int(re.search(r"want (\d+);", output)[1]))

        path = write_job(self, job)
        server = enough([SERVER, "--job", path, "--rank", "0", "--listen", "127.0.0.1:0"])
        worker = enough([WORKER, "--job", path, "--coordinator", "127.0.0.1:1"])
        # Of any job; when this one's are asked for two threads wait for signals.
        server["SCARCE_THREADS"] = str(int(server["SCARCE_THREADS"]) + 4 + 2)
        worker["SCARCE_THREADS"] = str(int(worker["SCARCE_THREADS"]) + 1 + 2)
        cluster = Cluster(self, job, servers=0, workers=0)
        for rank in range(2):
            cluster.start_server(rank, "--metrics", "127.0.0.1:0", env=server)
        for rank in range(2):
            cluster.start_worker(rank, env=worker)
        cluster.finish()
        for process in cluster.servers + cluster.workers:
            self.assertNotIn("refused", process.output())

    def test_a_way_of_grpc_to_wait_that_there_is_not_is_one_line(self):
        path = write_job(self, digits())
        for name, command in (("run", [TESSERA, "run", path]), ("status", [TESSERA, "status", "127.0.0.1:1"]),
                              ("server", [SERVER, "--job", path, "--rank", "0", "--listen", "127.0.0.1:0"]),
                              ("worker", [WORKER, "--job", path, "--coordinator", "127.0.0.1:1"])):
            with self.case(name):
                output = Process(self, name, command, env={"GRPC_POLL_STRATEGY": "none"}).expect_exit(2)
                self.assertRegex(output, r"^tessera(-%s)?: GRPC_POLL_STRATEGY: is \"none\", .*; unset it\n$" % name)

    def test_open_files_and_address_space_that_are_too_few_are_one_line(self):
        path = write_job(self, digits())
        for name, command in (("run", [TESSERA, "run", path]),
                              ("server", [SERVER, "--job", path, "--rank", "0", "--listen", "127.0.0.1:0"]),
                              ("worker", [WORKER, "--job", path, "--coordinator", "127.0.0.1:1"])):
            with self.case(name):
                output = Process(self, name, limited(command, "n", 12)).expect_exit(2)
                self.assertRegex(output, r"^tessera(-%s)?: open files: the limit is 12, want \d+ or more; raise it "
                                         r"\(ulimit -n\)\n$" % name)
                output = Process(self, name, limited(command, "v", 200000)).expect_exit(2)
                self.assertRegex(output, r"^tessera(-%s)?: threads: the system gives \d+ more, want \d+; raise the "
                                         r"limit of address space \(ulimit -v\), .*\n$" % name)

    def test_a_limit_of_file_size_is_a_full_disk(self):
        job = digits(units=4096, epochs=1, servers=1, workers=1)
        job["checkpoint"] = {"directory": self.path("checkpoints"), "every_steps": 10}
        path, report = write_job(self, job), self.path("report.json")
        run = Process(self, "run", limited([TESSERA, "run", path, "--report", report], "f", 200))
        output = run.expect_exit(0)
        self.contains(re.sub(r"\s+", " ", output), "FAILED server 0: checkpoint:", "cannot be written: File too large")
        with open(report) as file:
            self.contains(file.read(), '"outcome": "finished"')
        for command, words in (
                (["simulate", write_job(self, digits(epochs=1)), "--step-time", "1ms", "--report", report], "--report"),
                (["export", self.kept(), self.path("model.safetensors")], "export")):
            with self.case(words):
                # Nor is anything said in files, which have no room.
                code, _, error = self.with_file_size(0, command)
                self.assertEqual(code, 1)
                self.contains(error, words, "cannot be written: File too large")

    def kept(self):
        job = digits(epochs=1)
        job["checkpoint"] = {"directory": self.path("kept")}
        run_to_end(self, job)
        return self.path("kept")

    def with_file_size(self, most, command):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            return tessera(*command)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def test_rows_beyond_the_machines_memory_are_told_with_what_helps(self):
        rows = 1 << 27
        header = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 65536), }" % rows
        with open(self.path("rows.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117).encode() + b"\n")
            file.truncate(128 + rows * 65536)  # takes no room on the disk
        job = digits()
        job["model"]["input"] = [65536]
        job["data"] = {"format": "npy", **{part: {"features": self.path("rows.npy"), "labels": self.path("rows.npy")}
                                           for part in ("train", "test")}}
        worker = [WORKER, "--job", write_job(self, job), "--coordinator", "127.0.0.1:1"]
        output = Process(self, "worker", worker).expect_exit(2)
        self.contains(output, "rows.npy: needs %d bytes of memory, want at most " % (rows * (65536 + 4)),
                      "; this machine or container has no more memory; use a larger one, or give each worker its part")


if __name__ == "__main__":
    unittest.main()
