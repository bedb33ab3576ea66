"""`tessera doctor`: every finding comes with what to do, and a healthy job has none."""
import os
import re
import shutil
import socket
import unittest

from cluster import ROOT, Cluster, Test, digits, free_ports, tessera, write_job

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
        self.examine(job, 1, "server 0 at 127.0.0.1:%d: its machine refuses connections" % ports[0],
                     "tessera-server --job JOB --rank 1", "2 problems")
        cluster = Cluster(self, job, workers=0)
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
            self.examine(job, 1, "somebody listens there and gives no status")
        job["cluster"]["servers"] = ["nowhere.invalid:7000"]
        self.examine(job, 1, "the host's name is not known here")
        job["data"]["directory"] = self.path("nothing")
        self.examine(job, 1, "data.directory:", "use --no-data")
        self.assertNotIn("data.directory:", self.examine(job, 1, extra=("--no-data",)))
        job = digits()
        job["security"] = {"token_file": "tokens"}
        self.examine(job, 1, "want TLS beside it")
        # Files that cannot be used are the one thing that is wrong with them.
        job = digits(workers=1)
        job["cluster"]["servers"] = ["192.0.2.1:7000"]
        job["security"] = {"certificate": "none.pem", "private_key": "none.key"}
        self.assertNotIn("other machines", self.examine(job, 1, "want a file that can be read"))
        self.examine(digits(), 0, "cluster.servers is a number", "no problem found")

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
            examine(self.path("file"), 1, "cannot be written: Not a directory")
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

    def test_checkpoints_that_no_server_would_take_are_problems(self):
        folder = self.path("checkpoints")
        job = digits(epochs=2)
        kept = dict(job, checkpoint={"directory": folder, "every_steps": 10})
        code, _, error = tessera("run", write_job(self, kept), "--quiet")
        self.assertEqual((code, error), (0, ""))
        self.examine(kept, 1, "has checkpoints already", "set checkpoint.restore to go on from there")
        restored = dict(job, checkpoint={"directory": folder, "restore": folder})
        self.examine(restored, 0, "checkpoint.restore: the job goes on from step ", "no problem found")
        # The newest is broken.
        newest = sorted(os.listdir(folder), key=lambda name: int(name.split("-")[-1]) if "-" in name else 0)[-1]
        os.remove(os.path.join(folder, newest, "manifest.json"))
        self.examine(restored, 0, "is passed over", "the job goes on from step")
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
        self.assertIn("1 server ", self.examine(self.job([7001]), 1, extra=("--no-data",)))

    def test_a_server_that_would_refuse_to_start_is_no_advice(self):
        port = free_ports(1)[0]
        job = self.job([port])
        job["cluster"]["servers"] += ["nowhere.invalid:7000"]
        self.examine(job, 1, "other machines can reach nowhere.invalid:7000: a server that is started there ends",
                     "security.insecure: true")
        self.assertNotIn("other machines", self.examine(dict(job, security={"insecure": True}), 1))
        self.assertNotIn("other machines", self.examine(self.job([port]), 1))

    def test_a_bad_job_is_said_to_be_one(self):
        path = write_job(self, dict(digits(), sed=7))
        code, out, error = tessera("doctor", path)
        self.assertEqual((code, out), (2, ""))
        self.contains(error, 'unknown key; did you mean "seed"?')


if __name__ == "__main__":
    unittest.main()
