"""What README and docs show works as it stands there: each command of theirs is run by a test, or is listed with the
reason why it is not."""
import os
import re
import signal
import subprocess
import sys
import unittest

import yaml

from cluster import DIGITS, ENDLESS, ROOT, SERVER, TESSERA, TEST_MAX, WITH_PARENT, WORKER, Process, Test
from cluster import free_ports
from commands import PAGES, blocks, commands_of, text_of
from machines import Network, wanted, why_not

README, TUTORIAL, METHODS, SIMULATING = "README.md", "docs/tutorial.md", "docs/methods.md", "docs/simulating.md"
STARTING, JOB = "docs/operating/starting.md", "docs/operating/job.md"
SECURITY, METRICS = "docs/operating/security.md", "docs/operating/metrics.md"
WATCHING = "docs/operating/watching.md"
# How commands that are not run begin, and why.
NOT_RUN = {
    "bazel ": "builds, tests and benchmarks: Bazel runs this test",
    "bench/": "a benchmark: its target's test runs it small",
    "sudo bench/": "a benchmark",
    "python3 bench/": "a benchmark: its target's test runs it small",
    "bazel-bin/bench/": "a benchmark: its target's test runs it small",
    "TESSERA_PTX_REACH=": "the long form of a test",
    "LD_PRELOAD=": "wants a library that this test does not build; bench and the tests for GPUs run it",
    "./deploy/quickstart.sh": "installs packages and builds; tests/deploy/scripts_test.py runs its end",
    "./deploy/test.sh": "runs this test",
    "deploy/test.sh": "runs this test",
    "deploy/install_deps.sh": "installs packages; tests/deploy/scripts_test.py has its list",
    "deploy/build.sh": "builds; tests/deploy/scripts_test.py",
    "deploy/bundle.sh": "builds; tests/deploy/bundle_test.py runs what it packs",
    "deploy/fuzz.sh ": "builds with clang",
    "deploy/package.sh": "builds; tests/e2e/packages_test.py runs it, and installs what it packs",
    "sudo apt install ": "installs packages; tests/e2e/packages_test.py does it in a clean Debian",
    "tessera run /usr/share/tessera/jobs/digits.yaml": "wants the package; tests/e2e/packages_test.py",
    "podman ": "wants podman; tests/e2e/container_test.py",
    "kubectl apply ": "wants a cluster",
    "kubectl create ": "wants a cluster",
    "kubectl kustomize ": "wants kubectl; tests/e2e/manifests_test.py",
    "tests/fuzz/corpus.py ": "changes the kept corpora; tests/deploy/scripts_test.py unpacks one",
    "tar -C /opt ": "writes to /opt; tests/deploy/bundle_test.py does it elsewhere",
    "tar xzf gpu_bundle.tar.gz": "wants a machine with a GPU; tests/deploy/gpu_check_test.py",
    "RESULTS=": "wants a machine with a GPU; tests/deploy/gpu_check_test.py",
    "/opt/tessera/fetch_data.sh ": "downloads",
    "bazel-bin/deploy/cli/tessera": "no command, but where the programs are",
    "kernels/": "no command, but a file",
    "git ls-files ": "changes the sources; tests/deploy/tidy_test.py looks at them",
    "tessera run job.yaml --set cluster.device=cuda": "wants a GPU; tests/e2e/device_test.py",
    "tessera-worker --job job.yaml --set cluster.device=cuda:1": "wants a GPU; tests/e2e/device_test.py",
    "tessera run job.yaml --worker ": "wants a program of the reader's own; tests/e2e/tensors_test.py",
    "python3 joined.py ": "wants PyTorch; tests/worker/python/own_models_test.py",
    "tessera run joined.yaml --worker ": "wants PyTorch; tests/worker/python/own_models_test.py",
    "tessera init mydata ": "wants data of one's own; tests/e2e/first_contact_test.py",
    "tessera plot a.json ": "wants reports; tests/e2e/first_contact_test.py",
    "tessera plot --table ": "wants a table; tests/e2e/first_contact_test.py",
    "tessera history report.json ": "wants a report; tests/e2e/first_contact_test.py",
    "tessera import model.safetensors ": "wants a model of the reader's own; tests/deploy/cli/import/import_test.py",
    "tessera run job.yaml --tensorboard events": "tests/e2e/first_contact_test.py",
    "tessera-server --job job.yaml --rank 0 --page ": "tests/e2e/page_test.py runs it on loopback",
    "tessera status HOST:PORT --events": "tests/e2e/page_test.py",
    "tessera status HOST:PORT --events --follow": "tests/e2e/page_test.py",
    "tessera/tessera launch ": "wants machines that ssh reaches; tests/e2e/launch_test.py",
    "tessera launch --slurm ": "wants Slurm; tests/e2e/slurm_test.py",
    "tessera sample ckpt ": "wants a checkpoint of a model of tokens; tests/e2e/text_test.py",
    "tessera run deploy/jobs/speech_ist.yaml ": "wants data that has no public address",
    "tessera run deploy/jobs/fashion_mnist.yaml ": "wants data that are downloaded, and takes minutes",
    "tessera plan deploy/jobs/speech.yaml ": "wants data that has no public address; tests/e2e/plan_test.py",
}


# Those that a test here runs.
RUN = {
    README: [
        "bazel-bin/deploy/cli/tessera check JOB.yaml",
        "bazel-bin/deploy/cli/tessera run JOB.yaml --set train.epochs=5 --report report.json",
        "bazel-bin/deploy/cli/tessera status HOST:PORT --watch",
        "bazel-bin/deploy/cli/tessera doctor JOB.yaml",
    ],
    TUTORIAL: [
        "tessera check ist.yaml",
        "tessera run ist.yaml --report report.json --set checkpoint.directory=ckpt",
        "tessera eval ckpt ist.yaml",
        "tessera export ckpt model.safetensors",
        "tessera doctor ist.yaml",
        "tessera-server --job ist.yaml --rank 0 --report report.json",
        "tessera-server --job ist.yaml --rank 1",
        "tessera-worker --job ist.yaml",
        "tessera status 10.0.0.1:7000",
    ],
    STARTING: [
        "tessera check job.yaml",
        "tessera run job.yaml --report report.json",
        "tessera run job.yaml --set cluster.workers=4 --logs logs",
        "tessera run job.yaml --metrics 127.0.0.1:9464",
        "tessera run job.yaml --page 127.0.0.1:8080",
        "tessera status 127.0.0.1:40643 --watch",
        "tessera plan job.yaml --nodes 8 --bandwidth 10Gbit",
        "tessera-server --job job.yaml --rank 0 --report report.json",
        "tessera-server --job job.yaml --rank 1",
        "tessera-worker --job job.yaml",
        "tessera-worker --job job.yaml --set data.directory=/mnt/data --set cluster.threads=2",
        "tessera-worker --job job.yaml --rank 0",
        "tessera-worker --job job.yaml --rank 1",
        "tessera-worker --job job.yaml --rank 2 --listen 10.0.0.3:7100",
        "tessera-server --job job.yaml --rank 2",
        "tessera-worker --job job.yaml --rank 2",
        "tessera-server --job job.yaml --rank 4 --listen 10.0.0.9:7000",
        "tessera-worker --job job.yaml --rank 4",
        "tessera doctor job.yaml",
    ],
    SECURITY: [
        "openssl req -x509 -newkey rsa:3072 -nodes -keyout ca.key -out ca.pem -days 365 -subj /CN=tessera",
        "openssl req -newkey rsa:3072 -nodes -keyout host.key -out host.csr -subj /CN=host",
        "echo subjectAltName=IP:10.0.0.1,DNS:host > names",
        "openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -extfile names "
        "-out host.pem",
        "tessera status 10.0.0.1:7000 --authority ca.pem --certificate host.pem --private-key host.key "
        "--token-file viewer",
    ],
    METRICS: [
        "tessera run job.yaml --metrics 127.0.0.1:9464",
        "tessera-server --job job.yaml --rank 0 --metrics 10.0.0.1:9464",
        "curl http://10.0.0.1:9464/metrics",
    ],
    WATCHING: ["tessera run job.yaml --page 127.0.0.1:8080"],
    METHODS: [
        "tessera run deploy/jobs/digits.yaml --report r.json --set train.epochs=8 --set train.evaluate_every=0 "
        "--set 'codec={push: bf16}' --set 'method={ist: {local_steps: 1}}' "
        "--set 'train.optimizer={sgd: {learning_rate: 0.001}}' "
        "--set 'model.layers=[linear: {units: 400, bias: false}, batch_norm: {}, relu: {}, "
        "linear: {units: 400, bias: false}, batch_norm: {}, relu: {}, linear: {units: 10}]'",
    ],
    SIMULATING: [
        "tessera simulate JOB.yaml --workers 64 --servers 8 --bandwidth 1Gbit --latency 200us --step-time 20ms "
        "--speed-spread 0.3",
    ],
}


class Commands(Test):
    """In a folder with the job of the page, where a shell finds the programs."""

    ran = set()  # (page, command)

    def setUp(self):
        super().setUp()
        self.bin, self.jobs = self.path("bin"), self.path("jobs")
        for folder in (self.bin, self.jobs, self.path("jobs/bazel-bin/deploy/cli")):
            os.makedirs(folder)
        for program in (TESSERA, SERVER, WORKER):
            os.symlink(program, os.path.join(self.bin, os.path.basename(program)))
        os.symlink(TESSERA, self.path("jobs/bazel-bin/deploy/cli/tessera"))
        os.symlink(os.path.join(ROOT, "deploy/data"), self.path("data"))
        os.symlink(os.path.join(ROOT, "deploy"), self.path("jobs/deploy"))
        os.symlink(os.path.join(ROOT, "deploy/data"), self.path("jobs/data"))
        self.env = dict(os.environ, PATH=self.bin + ":" + os.environ["PATH"])

    def job(self, page, after, *more, name="job.yaml", **keys):
        """The job that a page shows behind `after`, with the keys of other blocks of it or of "Starting"."""
        job = yaml.safe_load(blocks(page, after)[0])
        for text in more:
            found = [block for shown in (page, STARTING) for block in blocks(shown) if re.match(text, block)]
            self.assertEqual(len(found), 1, text)
            job.update(yaml.safe_load(found[0]))
        job.update(keys)
        with open(os.path.join(self.jobs, name), "w") as file:
            yaml.safe_dump(job, file)
        return job

    def command(self, page, command, **there):
        """A command of a page, word for word but for what only a person there can know."""
        self.assertIn(command, RUN[page])
        self.ran.add((page, command))
        for word, value in there.items():
            command = command.replace(word, value)
        return ["sh", "-c", 'cd "%s" && PATH="%s:$PATH" && exec %s' % (self.jobs, self.bin, command)]

    def end_well(self, page, command, **there):
        with self.subTest(command):
            done = subprocess.run(WITH_PARENT + self.command(page, command, **there), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=TEST_MAX)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout

    def run_and_watch(self, page, run, watch, place):
        """`run` with its status from another terminal."""
        running = Process(self, "run", self.command(page, run))
        running.await_output("tessera status ")
        address = re.search(r"tessera status (\S+)", running.output()).group(1)
        watching = Process(self, "watch", ["sh", "-c", self.command(page, watch)[2].replace(place, address)])
        running.expect_exit(0, within=TEST_MAX)
        watching.expect_exit(0)

    def test_the_readmes_job_and_its_commands(self):
        self.job(README, "## A job\n", name="JOB.yaml")
        program = "bazel-bin/deploy/cli/tessera "
        for command in ("check JOB.yaml", "doctor JOB.yaml"):
            self.end_well(README, program + command)
        self.run_and_watch(README, program + "run JOB.yaml --set train.epochs=5 --report report.json",
                           program + "status HOST:PORT --watch", "HOST:PORT")
        # So many workers want more rows, or smaller minibatches.
        with open(self.path("jobs/JOB.yaml")) as file:
            text = file.read()
        with open(self.path("jobs/JOB.yaml"), "w") as file:
            file.write(text.replace("batch_size: 32", "batch_size: 16"))
        self.end_well(SIMULATING, *RUN[SIMULATING])
        # Those within its text.
        inline = re.findall(r"`tessera ((?:plan|simulate) JOB\.yaml[^`\n]*)`", text_of(README))
        self.assertEqual(len(inline), 2)
        for command in inline:
            done = subprocess.run([TESSERA] + command.split(), cwd=self.jobs, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_one_machine(self):
        self.job(JOB, "# The job file\n")
        for command in ("tessera check job.yaml", "tessera doctor job.yaml",
                        "tessera run job.yaml --set cluster.workers=4 --logs logs",
                        "tessera plan job.yaml --nodes 8 --bandwidth 10Gbit"):
            self.end_well(STARTING, command)
        self.run_and_watch(STARTING, "tessera run job.yaml --report report.json",
                           "tessera status 127.0.0.1:40643 --watch", "127.0.0.1:40643")

    def test_a_method_of_another_page(self):
        self.end_well(METHODS, *RUN[METHODS])

    def test_the_tutorial_on_one_machine(self):
        self.job(TUTORIAL, "## 2. Write a job\n", name="ist.yaml")
        self.end_well(TUTORIAL, "tessera check ist.yaml")
        run = self.end_well(TUTORIAL, "tessera run ist.yaml --report report.json --set checkpoint.directory=ckpt")
        # Other processors round otherwise.
        line = re.compile(r"^ +(\d+\.0) +[0-9.]+ +([0-9.]+) +([0-9.]+) +([0-9.]+)$", re.M)
        found, shown = line.findall(run), line.findall(text_of(TUTORIAL))
        self.assertEqual([each[0] for each in found], [each[0] for each in shown])
        for ours, theirs in zip(found, shown):
            for value, figure in zip(ours, theirs):
                self.assertAlmostEqual(float(value), float(figure), delta=0.02)
        self.assertIn("450 test rows", self.end_well(TUTORIAL, "tessera eval ckpt ist.yaml"))
        self.assertIn(self.end_well(TUTORIAL, "tessera export ckpt model.safetensors").split("\n")[0],
                      text_of(TUTORIAL))

    @wanted
    def test_the_tutorial_on_three_machines(self):
        changed = yaml.safe_load(blocks(TUTORIAL, "## 4. Make it")[0])
        self.assertEqual(sorted(changed), ["cluster", "security", "train"])
        # A person has time to look at it; this test asks once.
        changed["train"]["epochs"] //= 5
        changed["train"]["evaluate_every"] //= 5
        self.job(TUTORIAL, "## 2. Write a job\n", name="ist.yaml", **changed)
        network = Network(self, first="10.0.0.1", second="10.0.0.2", third="10.0.0.3")
        code, out = network.third.run(self.command(TUTORIAL, "tessera doctor ist.yaml"))
        self.assertEqual(code, 0, out)
        begin = "tessera-server --job ist.yaml --rank "
        started = [
            network.first.start("server 0", self.command(TUTORIAL, begin + "0 --report report.json")),
            network.second.start("server 1", self.command(TUTORIAL, begin + "1"))]
        for machine in (network.first, network.second, network.third):
            started.append(machine.start("worker on " + machine.name,
                                         self.command(TUTORIAL, "tessera-worker --job ist.yaml")))
        for worker in started[2:]:
            worker.await_output("joined rank=")
        code, out = network.third.run(self.command(TUTORIAL, "tessera status 10.0.0.1:7000"))
        self.assertEqual(code, 0, out)
        self.assertIn("independent subnets", out)
        for process in started:
            process.expect_exit(0, within=TEST_MAX)

    @wanted
    def test_several_machines(self):
        self.job(JOB, "# The job file\n", r"cluster: \{servers: \[10\S+ \S+\], workers: 3")
        network = Network(self, first="10.0.0.1", second="10.0.0.2", third="10.0.0.3")
        network.third.shell("mount -t tmpfs none /mnt && mkdir /mnt/data && mount --bind %s /mnt/data" %
                            os.path.realpath(DIGITS))
        start = "tessera-server --job job.yaml --rank "
        started = [
            network.first.start("server 0", self.command(STARTING, start + "0 --report report.json")),
            network.second.start("server 1", self.command(STARTING, start + "1")),
            network.first.start("worker", self.command(STARTING, "tessera-worker --job job.yaml")),
            network.second.start("worker", self.command(STARTING, "tessera-worker --job job.yaml")),
            network.third.start("worker", self.command(
                STARTING, "tessera-worker --job job.yaml --set data.directory=/mnt/data --set cluster.threads=2"))]
        for process in started:
            process.expect_exit(0, within=TEST_MAX)
        self.assertTrue(os.path.exists(self.path("jobs/report.json")))

    @wanted
    def test_workers_that_train_different_layers(self):
        self.job(JOB, "# The job file\n", r"cluster: \{servers: \[10\S+ \S+\], workers: 3",
                 method={"layer_separation": {"linear_workers": 1}},
                 model={"input": [1, 8, 8], "layers": [{"conv2d": {"channels": 4, "kernel": [3]}}, "relu",
                                                       {"linear": {"units": 10}}]})
        network = Network(self, first="10.0.0.1", second="10.0.0.2", third="10.0.0.3")
        begin = "tessera-server --job job.yaml --rank "
        started = [
            network.first.start("server 0", self.command(STARTING, begin + "0 --report report.json")),
            network.second.start("server 1", self.command(STARTING, begin + "1"))]
        for machine, rest in ((network.first, "0"), (network.second, "1"), (network.third, "2 --listen 10.0.0.3:7100")):
            started.append(machine.start("worker " + rest[0], self.command(
                STARTING, "tessera-worker --job job.yaml --rank " + rest)))
        for process in started:
            process.expect_exit(0, within=TEST_MAX)

    @wanted
    def test_without_central_servers(self):
        # It would end before a fourth site has joined.
        train = {"batch_size": 32, "epochs": ENDLESS, "optimizer": {"sgd": {"learning_rate": 0.2}}, "evaluate_every": 0}
        self.job(JOB, "# The job file\n", method={"decentralized": {}}, security={"insecure": True}, train=train,
                 cluster={"servers": ["10.0.0.%d:7000" % (1 + rank) for rank in range(3)], "workers": 3})
        network = Network(self, one="10.0.0.1", two="10.0.0.2", three="10.0.0.3", nine="10.0.0.9")
        servers, workers = [], []
        for rank, machine in enumerate((network.one, network.two, network.three)):
            # As the page says of rank 2.
            commands = [self.command(STARTING, "tessera-%s --job job.yaml --rank 2" % part)
                        for part in ("server", "worker")]
            if rank != 2:
                commands = [each[:2] + [each[2].replace("--rank 2", "--rank %d" % rank)] for each in commands]
            servers.append(machine.start("server %d" % rank, commands[0]))
            workers.append(machine.start("worker %d" % rank, commands[1]))
        for worker in workers:
            worker.await_output("joined rank=")
        servers.append(network.nine.start("server 4", self.command(
            STARTING, "tessera-server --job job.yaml --rank 4 --listen 10.0.0.9:7000")))
        workers.append(network.nine.start("worker 4", self.command(
            STARTING, "tessera-worker --job job.yaml --rank 4")))
        workers[-1].await_output("joined rank=4")
        servers[0].signal(signal.SIGTERM)
        for process in workers + servers:
            process.expect_exit(0, within=TEST_MAX)

    @wanted
    def test_certificates_and_metrics(self):
        for command in commands_of(SECURITY):
            if command.startswith(("openssl ", "echo subjectAltName=")):
                self.end_well(SECURITY, command)
        with open(os.path.join(self.jobs, "viewer"), "w") as file:
            file.write("viewer 0123456789abcdef0123\n")
        self.job(JOB, "# The job file\n", cluster={"servers": ["10.0.0.1:7000"], "workers": 1},
                 security={"certificate": "host.pem", "private_key": "host.key", "authority": "ca.pem",
                           "token_file": "viewer"})
        network = Network(self, first="10.0.0.1", second="10.0.0.2")
        server = network.first.start("server 0", self.command(
            METRICS, "tessera-server --job job.yaml --rank 0 --metrics 10.0.0.1:9464"))
        server.await_output("server: serving rank=0")
        code, out = network.second.run(self.command(
            SECURITY, "tessera status 10.0.0.1:7000 --authority ca.pem --certificate host.pem --private-key host.key "
            "--token-file viewer"))
        self.assertEqual(code, 0, out)
        self.assertIn("waiting", out)
        code, out = network.second.run(self.command(METRICS, "curl http://10.0.0.1:9464/metrics"))
        self.assertEqual(code, 0, out)
        self.assertIn("tessera_job_info", out)
        # In a network of its own the port is free.
        self.job(JOB, "# The job file\n")
        for page in (METRICS, STARTING):
            code, out = network.second.run(self.command(page, "tessera run job.yaml --metrics 127.0.0.1:9464"))
            self.assertEqual(code, 0, out)
        for page in (WATCHING, STARTING):
            code, out = network.second.run(self.command(page, "tessera run job.yaml --page 127.0.0.1:8080"))
            self.assertEqual(code, 0, out)
            self.assertIn("page: http://127.0.0.1:8080/", out)

    def test_the_python_clients_own_words(self):
        with open(os.path.join(ROOT, "deploy/examples/python_client.py")) as file:
            words = re.search(r'"""(.*?)"""', file.read(), re.S).group(1)
        # The same two lines, at ports that are free here.
        for port, free in zip(("7000", "7001"), free_ports(2)):
            words = words.replace("127.0.0.1:" + port, "127.0.0.1:%d" % free)
        shown = "\n".join(re.findall(r"^    (?!#)(.*)$", words, re.M))
        self.assertEqual(shown.count("&\n"), 2)
        client = "deploy/examples/python_client.py"
        shown = shown.replace(client, "%s %s/%s --proto-root %s" % (sys.executable, ROOT, client, ROOT))
        shown += " || { kill $(jobs -p); exit 1; }\nwait"
        done = subprocess.run(WITH_PARENT + ["sh", "-c", shown], cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=TEST_MAX)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertGreater(float(re.search(r"test accuracy ([0-9.]+)", done.stdout).group(1)), 0.9)


class Complete(unittest.TestCase):
    """Its name comes behind that of the tests whose commands it counts."""

    def test_each_command_is_run_or_listed_with_a_reason_and_no_list_is_old(self):
        listed = set()
        for page in PAGES:
            for command in commands_of(page):
                begins = {begin for begin in NOT_RUN if command == begin or
                          (begin[-1] in " /=" and command.startswith(begin))}
                listed |= begins
                with self.subTest(page):
                    self.assertNotEqual(command in RUN.get(page, ()), bool(begins),
                                        "%s: run it in a test (RUN), or list why not (NOT_RUN)" % command)
        self.assertEqual(sorted(set(NOT_RUN) - listed), [], "listed, and shown no more")
        for page, commands in RUN.items():
            self.assertEqual(sorted(set(commands) - set(commands_of(page))), [], "run, and shown no more")

    @unittest.skipIf([each for each in sys.argv[1:] if each[0] != "-"] or why_not(), "not all tests were run")
    def test_what_is_to_be_run_was(self):
        self.assertEqual(sorted(Commands.ran), sorted((page, each) for page in RUN for each in RUN[page]))


if __name__ == "__main__":
    unittest.main()
