"""`tessera doctor`: every finding comes with what to do, and a healthy job has none."""
import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
import unittest

from authority import Authority
from cluster import (ROOT, SERVER, TESSERA, WITH_PARENT, WORKER, Cluster, Process, Test, digits, free_ports,
                     run_to_end, tessera, write_job)

ENDLESS = 1000000


class Doctor(Test):
    def examine(self, job, code, *says, extra=()):
        path = job if isinstance(job, str) else write_job(self, job, "examined.yaml")
        # A resolver may be slow to know of no such name.
        got, out, error = tessera("doctor", path, *extra, within=100)
        text = " ".join(out.split())
        self.assertEqual((got, error), (code, ""), out)
        self.contains(text, *says)
        return text

    def job(self, ports, **keys):
        job = digits(workers=2, epochs=ENDLESS, **keys)
        job["cluster"]["servers"] = ["127.0.0.1:%d" % port for port in ports]
        return job

    def test_it_follows_a_job_from_nobody_there_to_training(self):
        ports = free_ports(2)
        job = self.job(ports)
        # Before it starts nothing is wrong with that.
        text = self.examine(job, 0, "note server 0 at 127.0.0.1:%d: its machine refuses connections" % ports[0],
                            "so it is not up yet; the port is free", "tessera-server --job JOB --rank 1",
                            "no problem found")
        self.assertNotIn("PROBLEM", text)
        cluster = Cluster(self, job, servers=1, workers=0)
        self.examine(job, 1, "ok server 0 at", "PROBLEM server 1 at 127.0.0.1:%d: its machine refuses" % ports[1],
                     "1 problem")
        cluster.start_server(1)
        cluster.await_status("both servers are here", lambda s: all(x["address"] for x in s["servers"]))
        text = self.examine(job, 0, "server 0 at", "server 1 at", "the job waits for", "worker", "no problem found")
        self.assertNotIn("PROBLEM", text)
        for rank in range(2):
            cluster.start_worker(rank)
        cluster.await_step(5)
        text = self.examine(job, 0, "training, security none", "no problem found")
        self.assertNotIn("waits for", text)
        # Another job file than the servers have.
        self.examine(dict(job, seed=9), 1, "its job's digest is", "compare `tessera check` on both machines")
        cluster.drain()
        cluster.finish()

    def test_what_else_may_be_wrong(self):
        ports = free_ports(1)
        job = self.job(ports)
        with socket.create_server(("127.0.0.1", ports[0])):
            self.examine(job, 1, "somebody listens there and gives no status", "takes the connection and says nothing")
        with socket.create_server(("127.0.0.1", ports[0])) as listening:
            speaker = threading.Thread(target=self.speak, args=(listening,))
            speaker.start()
            text = self.examine(job, 1, "listens there and gives no status", "another program listens there")
            self.assertNotIn("TLS", text)
            listening.shutdown(socket.SHUT_RDWR)
            speaker.join()
        # Whoever has a port need not listen.
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.examine(self.job([taken.getsockname()[1]]), 1, "that port: Address already in use", "1 problem")
        job["cluster"]["servers"] = ["nowhere.invalid:7000"]
        self.examine(job, 1, "the host's name is not known here")
        job["data"]["directory"] = self.path("nothing")
        self.examine(job, 1, "data.directory:", "use --no-data")
        self.assertNotIn("data.directory:", self.examine(job, 1, extra=("--no-data",)))
        job = digits()
        job["security"] = {"token_file": "tokens"}
        # No job at all, on any machine.
        code, _, error = tessera("doctor", write_job(self, job, "contradicts.yaml"))
        self.assertEqual(code, 2)
        self.contains(error, "contradicts.yaml:", "security.token_file: ", "want TLS beside it")
        # Files that cannot be used are the one thing that is wrong with them.
        job = digits(workers=1)
        job["cluster"]["servers"] = ["192.0.2.1:7000"]
        job["security"] = {"certificate": "none.pem", "private_key": "none.key"}
        self.assertNotIn("other machines", self.examine(job, 1, "want a file that can be read"))
        self.examine(digits(), 0, "cluster.servers is a number", "no problem found")

    @staticmethod
    def speak(listening):
        """Says to all who connect what no server does, until `listening` is shut down."""
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"220 mail.example ESMTP\r\n")
                connection.recv(1000)

    def test_what_is_found_is_said_at_once_and_servers_are_called_together(self):
        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
            job = self.job([each.getsockname()[1] for each in silent])
            path = write_job(self, job)
            doctor = stack.enter_context(subprocess.Popen(WITH_PARENT + [TESSERA, "doctor", path],
                                                          stdout=subprocess.PIPE, text=True))
            self.assertTrue(doctor.stdout.readline().startswith("ok       job: "))
            # Every one of them takes two seconds.
            self.assertIsNone(doctor.poll())
            held = []
            for each in silent:
                # One to see that it listens, which ends at once, and the call.
                for _ in range(2):
                    held.append(stack.enter_context(each.accept()[0]))
            held[1].setblocking(False)
            try:
                while held[1].recv(4096):
                    pass
                self.fail("the first call has ended before the last began")
            except BlockingIOError:
                pass
            self.contains(" ".join(doctor.stdout.read().split()), "server 2 at", "3 problems")
            self.assertEqual(doctor.wait(), 1)

    def test_certificates_that_no_handshake_would_take_are_problems(self):
        authority, other = Authority(self, "job"), Authority(self, "other")

        def examine(code, *says, **files):
            # Those of the test end soon.
            return self.examine(dict(digits(), security=files), code, "security: TLS", *says)

        certificate, key = authority.sign("right")
        files = {"certificate": certificate, "private_key": key}
        self.assertNotIn("PROBLEM", examine(0, authority=authority.certificate, **files))
        examine(1, "is not believed as a server's", "1 problem", authority=other.certificate, **files)
        certificate, key = authority.sign("named", "IP:10.0.0.1,DNS:host")
        examine(1, 'is for 10.0.0.1 and host, want "127.0.0.1"', "1 problem", certificate=certificate, private_key=key,
                authority=authority.certificate)

    def test_a_certificate_that_is_too_weak_is_refused_by_doctor_server_and_worker(self):
        authority = Authority(self, "job")
        certificate, key = authority.sign("weak", kind="rsa:1024")
        files = {"certificate": certificate, "private_key": key, "authority": authority.certificate}
        job = dict(self.job(free_ports(1)), security=files)
        says = ('security.certificate: certificate 1 of "%s" has an RSA key of 1024 bits, want 2048 or more' %
                certificate)
        self.examine(job, 1, "PROBLEM " + says)
        path = write_job(self, job)
        for program in ([SERVER, "--rank", "0"], [WORKER]):
            self.contains(Process(self, "refused", program + ["--job", path]).expect_exit(2), says)
        code, out, _ = tessera("check", path)
        self.assertEqual(code, 0)
        self.contains(out, "# note        " + says, "a program that is started here ends with 2")

    def test_a_folder_for_checkpoints_is_judged_as_a_server_does(self):
        def examine(folder, code, *says):
            return self.examine(dict(digits(), checkpoint={"directory": folder}), code, *says)

        text = examine(self.path("checkpoints"), 0, "checkpoints: ", " left in ")
        self.assertNotIn("PROBLEM", text)
        self.assertFalse(os.path.exists(self.path("checkpoints")))
        os.mkdir(self.path("there"))
        examine(self.path("there/"), 0, "checkpoints: ")
        self.assertEqual(os.listdir(self.path("there")), [])
        # A server makes the last folder alone.
        examine(self.path("none/below"), 1, '"%s" cannot be made: "%s" is not there' %
                (self.path("none/below"), self.path("none")), "mkdir -p " + self.path("none"))
        with open(self.path("file"), "w"):
            examine(self.path("file"), 1, "cannot be written: Not a directory", "is no folder")
        # Nobody may make anything in /proc, not even root.
        self.assertNotIn("left", examine("/proc/x", 1, '"/proc/x" cannot be made: '))

        # The coordinator's state has a folder in which server 0 makes one more.
        def state(folder, code, *says):
            job = digits()
            job["cluster"]["coordinator"] = {"directory": folder}
            return self.examine(job, code, *says)

        self.assertNotIn("coordinator", state(self.path("none/below"), 0))
        self.assertFalse(os.path.exists(self.path("none")))
        state(self.path("none/deep/below"), 1, "cluster.coordinator.directory: ", "the last two folders alone")
        state("/proc/x", 1, 'cluster.coordinator.directory: "/proc/x" cannot be made: ')

    def test_a_file_system_without_locks_has_checkpoints_and_no_state_of_the_coordinators(self):
        ways_out = ("cluster.coordinator.directory, or start server 0 with --no-takeover",)
        port = free_ports(1)[0]
        job = dict(self.job([port]), checkpoint={"directory": self.path("kept"), "every_steps": 100})
        asked = dict(job, cluster=dict(job["cluster"], coordinator={"directory": self.path("state")}))
        for error in ("enolck", "enosys", "eopnotsupp"):
            with self.case(error):
                without = {"TESSERA_FAILPOINTS": "folder.lock=" + error}
                os.environ.update(without)
                self.addCleanup(os.environ.pop, "TESSERA_FAILPOINTS")
                # As a failpoint says itself on stderr, too.
                code, out, _ = tessera("doctor", write_job(self, job))
                self.assertEqual(code, 0, out)
                self.contains(" ".join(out.split()), "note checkpoint.directory: ", "is on a file system without locks",
                              "another job in that folder would not be noticed", *ways_out)
                self.assertFalse(os.path.exists(self.path("kept")))
                code, out, _ = tessera("doctor", write_job(self, asked))
                self.assertEqual(code, 1, out)
                self.contains(" ".join(out.split()), "PROBLEM cluster.coordinator.directory: ",
                              "server 0 would end with 2", *ways_out)
                server = [SERVER, "--job", write_job(self, asked), "--rank", "0"]
                self.contains(Process(self, "server 0", server).expect_exit(2),
                              "cluster.coordinator.directory: ", "cannot be locked", *ways_out)
        os.environ["TESSERA_FAILPOINTS"] = "folder.lock=enolck"
        self.addCleanup(os.environ.pop, "TESSERA_FAILPOINTS")
        cluster = Cluster(self, job)
        cluster.await_status("a checkpoint", lambda status: int(status["checkpoint"].get("number", 0)) > 0)
        self.contains(cluster.servers[0].output(), "another job in the same folder would not be noticed",
                      "the coordinator's state is kept nowhere", *ways_out)
        cluster.drain()
        cluster.finish()

    def test_checkpoints_that_no_server_would_take_are_problems(self):
        folder = self.path("checkpoints")
        job = digits(epochs=2)
        kept = dict(job, checkpoint={"directory": folder, "every_steps": 10})
        code, _, error = tessera("run", write_job(self, kept), "--quiet")
        self.assertEqual((code, error), (0, ""))
        self.examine(kept, 1, "has checkpoints already", "set checkpoint.restore to go on from there")
        restored = dict(job, checkpoint={"directory": folder, "restore": folder})
        self.examine(restored, 0, "train.epochs is 2: nothing is left to train", "no problem found")
        self.examine(dict(restored, train=dict(job["train"], epochs=3)), 0,
                     "checkpoint.restore: the job goes on from step ", "no problem found")
        # The newest is broken.
        newest = sorted(os.listdir(folder), key=lambda name: int(name.split("-")[-1]) if "-" in name else 0)[-1]
        os.remove(os.path.join(folder, newest, "manifest.json"))
        self.examine(restored, 0, "is passed over", "the job goes on from step")
        # In the midst of an epoch.
        self.examine(dict(restored, train=dict(job["train"], batch_size=16)), 1, "train.batch_size: 16 makes 42 steps",
                     "server 0 would end with 2")
        self.examine(dict(job, checkpoint={"restore": self.path("nothing")}), 1, "checkpoint.restore: ",
                     "name another checkpoint")
        other = digits(epochs=2)
        other["model"]["layers"][0]["linear"]["units"] = 33
        self.examine(dict(other, checkpoint={"restore": folder}), 1, "it is of another model or another method")

    def test_data_is_read_as_workers_do(self):
        self.examine(digits(), 0, "rows to train on and", "to test with")
        cut = self.path("cut")
        shutil.copytree(os.path.join(ROOT, "deploy/data/optdigits"), cut)
        name = os.path.join(cut, "train-images-idx3-ubyte.gz")
        with open(name, "rb") as file:
            data = file.read()
        with open(name, "wb") as file:
            file.write(data[:len(data) // 2])
        job = digits()
        job["data"]["directory"] = cut
        self.examine(job, 1, "workers would end with 2")
        self.assertNotIn("workers would", self.examine(job, 0, extra=("--no-data",)))
        job = digits()
        job["train"]["batch_size"] = 100000
        self.examine(job, 1, "training rows are 1347, want at least 2 workers x 100000", "lower train.batch_size")
        # 42 steps in all.
        job = digits(epochs=2)
        job["method"] = {"local_sgd": {"local_steps": 43}}
        self.examine(job, 0, "note method.local_sgd.local_steps: is 43, and the job has 42 steps", "no problem found")
        job["train"]["batch_size"] = 100000
        # Others may have the rows that are missing here.
        job["data"]["partition"] = "local"
        self.examine(job, 0, "less than a minibatch of 100000", "have 2 x 100000 together", "no problem found")

    def test_memory_is_summed_as_processes_do(self):
        text = self.examine(digits(), 0, "memory: 2 servers with ", " and 2 workers with ", " available")
        self.assertIn(" take up to ", text)
        job = digits()
        job["cluster"]["memory_limit"] = "1MiB"
        text = self.examine(job, 1, "cluster.memory_limit: is 1048576 bytes, but a worker needs ", "2 problems")
        # A worker says the same.
        code, _, error = tessera("run", write_job(self, job, "small.yaml"), "--quiet")
        self.assertEqual(code, 2)
        need = re.search(r"needs (\d+) = ", error).group(1)
        self.assertIn("needs %s = " % need, text)
        self.assertIn("1 server ", self.examine(self.job(free_ports(1)), 0, extra=("--no-data",)))

    def test_a_workers_memory_is_what_it_was_said_to_be(self):
        """A residual network on images whose activations are most of what a worker holds."""
        block = [{"conv2d": {"channels": 64, "kernel": 3, "padding": 1, "bias": False}}, "batch_norm", "relu",
                 {"conv2d": {"channels": 64, "kernel": 3, "padding": 1, "bias": False}}, "batch_norm"]
        job = digits(servers=1, workers=1, batch=1000, rate=0.01, steps=2, cluster={"threads": 1})
        job["model"] = {"input": [1, 8, 8], "layers": [
            *block[:3], {"repeat": {"times": 4, "layers": [{"residual": {"layers": block}}, "relu"]}}, "avg_pool",
            {"linear": {"units": 10}}]}
        job["cluster"]["memory_limit"] = "1MiB"
        text = self.examine(job, 1, "but a worker needs ")
        said = int(re.search(r"a worker needs (\d+) = ", text).group(1))
        del job["cluster"]["memory_limit"]
        peak = run_to_end(self, job)["memory"]["worker_peak_rss_bytes"][0]
        self.assertGreater(peak, 250 << 20)
        self.assertTrue(0.9 * said <= peak <= 1.1 * said, (said, peak))

    def test_a_server_that_would_refuse_to_start_is_no_advice(self):
        port = free_ports(1)[0]
        job = self.job([port])
        job["cluster"]["servers"] += ["nowhere.invalid:7000"]
        self.examine(job, 1, "other machines can reach nowhere.invalid:7000: a server that is started there ends",
                     "security.insecure: true")
        self.assertNotIn("other machines", self.examine(dict(job, security={"insecure": True}), 1))
        self.assertNotIn("other machines", self.examine(self.job([port]), 0))

    def test_a_bad_job_is_said_to_be_one(self):
        path = write_job(self, dict(digits(), sed=7))
        code, out, error = tessera("doctor", path)
        self.assertEqual((code, out), (2, ""))
        self.contains(error, 'unknown key; did you mean "seed"?')


if __name__ == "__main__":
    unittest.main()
