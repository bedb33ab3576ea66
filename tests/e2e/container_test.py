"""The image of deploy/manifests/Containerfile, built and run by podman: as a user without a name, with a root that is
read-only, and with its health check."""
import json
import os
import shutil
import signal
import subprocess
import unittest

from cluster import SOON, Test, await_true, children_of, free_ports
from debian_base import base_archive, why_no_debian
from packed_tree import pack

# Containers have few files and processes allowed, as a machine may not let its limits be raised.
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
BASE, IMAGE = "localhost/debian:12-slim", "localhost/tessera:test"


class Podman:
    """Podman with images and containers of its own, of which nothing stays after a class of tests."""

    def __init__(self, test):
        self.test = test
        # Paths of sockets in it are short.
        self.folder = subprocess.run(["mktemp", "-d", "/tmp/tessera-podman-XXXXXX"], check=True, capture_output=True,
                                     text=True).stdout.strip()
        self.command = ["podman", "--root", self.folder + "/root", "--runroot", self.folder + "/run",
                        "--cgroup-manager", "cgroupfs", "--events-backend", "none"]
        test.addClassCleanup(self.remove)

    def choose(self, image):
        """Takes the runtime that runs containers here. Returns what the last one said where none does."""
        plain, said = self.command, ""
        for runtime in runtimes():
            self.command = plain + ["--runtime", runtime]
            said = self("run", "--rm", "--network=none", *LIMITS, image, "echo", "it", "runs", code=None)
            if "it runs" in said:
                return ""
        return " ".join(said.split())[:300]

    def remove(self):
        # Unmounts what is mounted, removes all containers and images.
        subprocess.run(self.command + ["system", "reset", "--force"], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __call__(self, *arguments, code=0, stdin=None):
        done = subprocess.run(self.command + list(arguments), capture_output=True, text=True, stdin=stdin)
        if code is not None:
            self.test.assertEqual(done.returncode, code, done.stdout[-3000:] + done.stderr[-3000:])
        return done.stdout + done.stderr


def why_no_podman():
    """Why no container can be run here; "": one can."""
    if shutil.which("podman") is None:
        return "no podman here: apt-get install podman"
    if not runtimes():
        return "no runc and no crun here: apt-get install runc"
    return why_no_debian()


def runtimes():
    """Those that are installed. Each refuses some machines: crun those with both versions of cgroups."""
    return [name for name in ("crun", "runc") if shutil.which(name, path="/usr/sbin:" + os.environ["PATH"])]


WHY_NOT = why_no_podman()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Container(Test):
    test_max = 900
    # The one that the first test has made the image with.
    podman = None

    def setUp(self):
        super().setUp()
        if Container.podman is None:
            podman = Podman(self)
            # Registries are asked for nothing: all images are here.
            podman("import", base_archive(self), BASE)
            fault = podman.choose(BASE)
            if fault:
                self.skipTest("podman runs no container here: " + fault)
            self.build(podman)
            Container.podman = podman

    def build(self, podman):
        tree, environment = pack(self.path("packed"))
        subprocess.run([tree + "/deploy/bundle.sh"], env=environment, check=True, capture_output=True)
        podman("build", "--format", "docker", "--pull=never", "-f", tree + "/deploy/manifests/Containerfile", "-t",
               IMAGE, tree)

    def start(self, name, *command):
        """Starts a container whose root is read-only, with a /tmp of its own, on this machine's network."""
        self.podman("run", "-d", "--name", name, "--read-only", "--network=host", *LIMITS, IMAGE, *command)
        self.addCleanup(self.podman, "rm", "-f", name, code=None)

    def health(self, name):
        """Runs the health check, and returns what came of it."""
        code = subprocess.run(self.podman.command + ["healthcheck", "run", name], capture_output=True, text=True)
        return "healthy" if code.returncode == 0 else "unhealthy: " + code.stdout + code.stderr

    def test_it_trains_as_nobody_with_a_root_that_is_read_only(self):
        config = self.podman("image", "inspect", IMAGE)
        self.assertEqual(json.loads(config)[0]["Config"]["User"], "65532:65532")
        self.assertRegex(config, r'"Test": \[\s*"CMD",\s*"/opt/tessera/manifests/health.sh"')
        told = self.podman("run", "--rm", "--read-only", "--network=none", *LIMITS, IMAGE)
        self.assertRegex(told, r"\n +40\.0 .* 0\.9\d\d\d")
        script = "id -u; grep ^CapEff /proc/self/status; touch /opt/tessera/x 2>&1 || touch /tmp/x && echo only"
        who = self.podman("run", "--rm", "--read-only", "--network=none", *LIMITS, IMAGE, "sh", "-c", script)
        self.assertRegex(who, r"(?s)65532\nCapEff:\s+0+\n.*Read-only file system\nonly")

    def test_its_health_check_says_when_a_process_serves_and_when_not(self):
        self.start("serving", "/opt/tessera/tessera", "run", "/opt/tessera/jobs/digits.yaml", "--set",
                   "train.epochs=1000000", "--metrics", "127.0.0.1:%d" % free_ports(1)[0])
        await_true("healthy", lambda: self.health("serving") == "healthy", 2 * SOON,
                   lambda: self.podman("logs", "serving", code=None))
        # Processes that are there and answer nothing: `tessera run`, and its server 0, which has the endpoint.
        pid = json.loads(self.podman("inspect", "serving"))[0]["State"]["Pid"]
        stuck = [pid, *children_of(pid)]
        for each in stuck:
            os.kill(each, signal.SIGSTOP)
        try:
            self.assertIn("unhealthy", self.health("serving"))
            said = self.podman("exec", "serving", "/opt/tessera/manifests/health.sh", code=1)
            self.assertIn("/healthz says nothing, want 200 within 3 s", said)
        finally:
            for each in stuck:
                os.kill(each, signal.SIGCONT)
        await_true("healthy again", lambda: self.health("serving") == "healthy", 2 * SOON)
        # Asked to end it has the job finish, and says by which signal it was asked.
        self.podman("stop", "-t", "60", "serving")
        self.assertEqual(json.loads(self.podman("inspect", "serving"))[0]["State"]["ExitCode"], 128 + signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
