"""`tessera launch --slurm`: a real slurmctld with three slurmd on this machine, each a node with its own address."""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

from cluster import (ENDLESS, SERVER, TESSERA, WORKER, Process, Test, await_true, digits, free_ports, lost, run_to_end,
                     status_of, tessera, write_job)

NODES = ["n1", "n2", "n3"]
CONFIG = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%(folder)s/munge.socket
CredType=cred/munge
SlurmctldPort=%(port)d
SlurmctldPidFile=%(folder)s/slurmctld.pid
SlurmdPidFile=%(folder)s/slurmd-%%n.pid
SlurmdSpoolDir=%(folder)s/spool-%%n
StateSaveLocation=%(folder)s/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
SlurmdTimeout=5
KillWait=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SlurmdParameters=config_overrides
%(nodes)s
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def program(name):
    return shutil.which(name, path="/usr/sbin:" + os.environ["PATH"])


def why_not():
    """Why there can be no Slurm here; "": there can."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "srun", "munged") if program(name) is None]
    if missing:
        return "no %s here: apt-get install slurm-wlm munge" % missing[0]
    return "" if os.geteuid() == 0 else "slurmd wants to be root"


WHY_NOT = why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Slurm(Test):
    def setUp(self):
        super().setUp()
        # Sockets' paths are short.
        self.slurm = subprocess.run(["mktemp", "-d", "/tmp/tessera-slurm-XXXXXX"], check=True, capture_output=True,
                                    text=True).stdout.strip()
        self.addCleanup(shutil.rmtree, self.slurm, ignore_errors=True)
        os.chmod(self.slurm, 0o755)
        os.mkdir(self.slurm + "/state")
        self.addCleanup(self.kill_jobs)
        key = self.slurm + "/munge.key"
        with open(key, "wb") as file:
            file.write(os.urandom(1024))
        os.chmod(key, 0o600)
        ports = free_ports(1 + len(NODES))
        for node in NODES:
            os.mkdir("%s/spool-%s" % (self.slurm, node))
        with open(self.slurm + "/slurm.conf", "w") as file:
            file.write(CONFIG % {"folder": self.slurm, "port": ports[0], "nodes": "\n".join(
                "NodeName=%s NodeHostname=localhost NodeAddr=127.0.0.%d Port=%d CPUs=4" % (node, 2 + i, ports[1 + i])
                for i, node in enumerate(NODES))})
        self.env = {"SLURM_CONF": self.slurm + "/slurm.conf"}
        Process(self, "munged", [program("munged"), "--foreground", "--force", "--key-file=" + key,
                                 "--socket=%s/munge.socket" % self.slurm, "--pid-file=%s/munge.pid" % self.slurm,
                                 "--log-file=%s/munge.log" % self.slurm, "--seed-file=%s/munge.seed" % self.slurm])
        await_true("munged listens", lambda: os.path.exists(self.slurm + "/munge.socket"))
        controller = Process(self, "slurmctld", [program("slurmctld"), "-D"], self.env)
        self.nodes = {node: Process(self, "slurmd " + node, [program("slurmd"), "-D", "-N", node], self.env)
                      for node in NODES}
        await_true("all nodes are idle", lambda: self.command("sinfo", "-h", "-o", "%D %t").split() == ["3", "idle"],
                   explain=controller.output)

    def kill_jobs(self):
        """Slurm's daemons are gone: what they have started for a job knows their configuration."""
        mine = ("SLURM_CONF=%s/slurm.conf" % self.slurm).encode()
        for path in glob.glob("/proc/[0-9]*/environ"):
            with contextlib.suppress(OSError):
                with open(path, "rb") as file:
                    environment = file.read().split(b"\0")
                if mine in environment:
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)

    def command(self, *words):
        return subprocess.run(words, env=dict(os.environ, **self.env), capture_output=True, text=True,
                              timeout=20).stdout

    def submit(self, job, *extra):
        """Starts the job; its number, and the path of its output."""
        self.programs, self.logs, self.report_path = self.path("programs"), self.path("logs"), self.path("report.json")
        os.makedirs(self.programs, exist_ok=True)
        for path in (TESSERA, SERVER, WORKER):
            link = os.path.join(self.programs, os.path.basename(path))
            if not os.path.exists(link):
                os.symlink(os.path.realpath(path), link)
        code, out, error = tessera("launch", "--slurm", write_job(self, job), "--bundle", self.programs, "--logs",
                                   self.logs, "--report", self.report_path, *extra, env=self.env)
        self.assertEqual(code, 0, error)
        return out

    def number(self, out):
        return re.match(r"Slurm job (\d+); its output will be in " + re.escape(self.logs), out).group(1)

    def output(self, number):
        try:
            with open("%s/slurm-%s.out" % (self.logs, number)) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def await_end(self, number, within=60):
        await_true("job %s ends" % number, lambda: "tessera: the job ended with " in self.output(number), within,
                   lambda: self.output(number))
        return int(re.search(r"the job ended with (\d+)", self.output(number)).group(1))

    def await_training(self, number, step=20):
        await_true("the servers are known", lambda: "tessera: servers: " in self.output(number),
                   explain=lambda: self.output(number) + self.command("squeue"))
        address = re.search(r"tessera: servers: ([^,;]+)", self.output(number)).group(1)

        def trains():
            status = status_of(address)
            return status is not None and int(status["step"]) >= step

        await_true("step %d" % step, trains, 60, lambda: self.output(number))
        return address

    def test_a_job_ends_on_three_nodes_as_on_one_machine(self):
        job = digits(servers=2, workers=3, epochs=4, evaluate_every=40)
        script = self.submit(job, "--print", "--sbatch=--comment=mine")
        self.contains(script, "#!/bin/bash\n", "#SBATCH --nodes=3\n", "#SBATCH --comment=mine\n")
        number = self.number(self.submit(job))
        self.assertEqual(self.await_end(number), 0, self.output(number))
        self.assertRegex(self.output(number), r"tessera: servers: 127\.0\.0\.2:\d+, 127\.0\.0\.3:\d+;")
        with open(self.report_path) as file:
            launched = json.load(file)
        alone = run_to_end(self, job)
        results = [[(entry["step"], entry["test_loss"], entry["test_accuracy"]) for entry in report["history"]]
                   for report in (launched, alone)]
        self.assertEqual(results[0], results[1])
        for node, name in [("n1", "server-0"), ("n2", "server-1"), ("n3", "worker-2")]:
            self.assertTrue(os.path.getsize("%s/%s/%s/%s.log" % (self.logs, number, node, name)))

    def test_a_killed_node_takes_its_worker_and_scancel_drains_the_rest(self):
        number = self.number(self.submit(digits(servers=1, workers=3, epochs=ENDLESS, batch=16, lease="4s")))
        address = self.await_training(number)
        # All of the node: the daemon, its steps and their processes.
        steps = self.command("pgrep", "-f", r"slurmstepd: \[%s\." % number).split()
        (worker,) = self.command("pgrep", "-f", "^%s/tessera-worker .* --rank 2" % self.programs).split()
        step = self.command("ps", "-o", "ppid=", "-p", worker).strip()
        self.assertIn(step, steps)
        self.nodes["n3"].kill()
        for pid in (step, worker):
            os.kill(int(pid), signal.SIGKILL)
        await_true("a worker is lost", lambda: lost(status_of(address) or {"members_lost": 0}) == 1)
        before = int(status_of(address)["step"])
        await_true("the others go on", lambda: int(status_of(address)["step"]) > before + 20)
        self.command("scancel", "--batch", "--signal=TERM", number)
        self.assertEqual(self.await_end(number), 0, self.output(number))
        with open(self.report_path) as file:
            report = json.load(file)
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 1))

    def test_nodes_that_cannot_take_part_are_told_before_anything_starts(self):
        job = digits(servers=1, workers=2, steps=3)
        job["data"] = dict(job["data"], directory=self.path("nowhere"))
        number = self.number(self.submit(job, "--nodes", "2"))
        await_true("it is told", lambda: "nodes cannot take part" in self.output(number), 60,
                   lambda: self.output(number))
        await_true("why is told", lambda: "data.directory" in self.output(number), explain=lambda: self.output(number))
        self.assertFalse(os.path.exists("%s/%s/n1" % (self.logs, number)))


if __name__ == "__main__":
    unittest.main()
