"""deploy/manifests: the very job and commands of kubernetes.yaml, on this machine, with a stand-in for what starts a
pod again; and that its parts fit each other and the image."""
import os
import re
import unittest

import yaml

from cluster import DIGITS, ROOT, SERVER, SOON, WORKER, Process, Test, await_true, free_ports, status_of

MANIFESTS = os.path.join(ROOT, "deploy", "manifests")


def documents():
    with open(os.path.join(MANIFESTS, "kubernetes.yaml")) as file:
        return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(file)}


def pod_of(name):
    return documents()["Job", name]["spec"]["template"]


class Pods:
    """Runs a job's pods as restartPolicy: OnFailure says."""

    def __init__(self, test, *more):
        self.test = test
        names = ["tessera-server-%d.tessera-servers:7000" % rank for rank in range(2)]
        self.addresses = ["127.0.0.1:%d" % port for port in free_ports(2)]
        self.file = test.path("job.yaml")
        with open(self.file, "w") as file:
            text = documents()["ConfigMap", "tessera-job"]["data"]["job.yaml"]
            text = text.replace("/opt/tessera/data/optdigits", DIGITS)
            for name, address in zip(names, self.addresses):
                assert text.count(name) == 1
                text = text.replace(name, address)
            file.write(text)
        self.more = [word for each in more for word in ("--set", each)]
        self.running, self.starts = {}, {}
        for name, part in (("tessera-server", "server"), ("tessera-worker", "worker")):
            for index in range(documents()["Job", name]["spec"]["completions"]):
                self.start((part, index))

    def start(self, pod):
        part, index = pod
        there = {"/opt/tessera/tessera-server": SERVER, "/opt/tessera/tessera-worker": WORKER,
                 "/etc/tessera/job.yaml": self.file, "$(JOB_COMPLETION_INDEX)": str(index)}
        if part == "server":
            there["0.0.0.0:7000"] = self.addresses[index]
            there["0.0.0.0:9464"] = "127.0.0.1:0"
        command = [there.get(word, word) for word in
                   pod_of("tessera-" + part)["spec"]["containers"][0]["command"]]
        self.starts[pod] = self.starts.get(pod, 0) + 1
        self.running[pod] = Process(self.test, "%s %d" % pod, command + self.more)

    def look_after(self):
        """Starts again what has failed."""
        for pod, process in list(self.running.items()):
            if not process.alive and process.popen.returncode != 0:
                self.start(pod)

    def await_step(self, step):
        """The step that was reached, `step` or a later one."""
        seen = []

        def reached():
            self.look_after()
            status = status_of(self.addresses[0])
            seen.append(int(status.get("step", 0)) if status else -1)
            return seen[-1] >= step
        await_true("step %d" % step, reached, 2 * SOON, self.logs)
        return seen[-1]

    def logs(self):
        return "\n".join("%s %d:\n%s" % (*pod, process.output()[-2000:]) for pod, process in self.running.items())


class Kubernetes(Test):
    def test_its_commands_train_its_job_to_the_end(self):
        pods = Pods(self)
        for process in pods.running.values():
            process.expect_exit(0)
        self.assertIn("accuracy=0.9", pods.running["server", 0].output())

    def test_whatever_crashes_comes_back_and_the_job_goes_on(self):
        pods = Pods(self, "train.epochs=100000", "cluster.lease_timeout=2s")
        step = pods.await_step(40)
        for pod in (("worker", 1), ("server", 1)):
            pods.running[pod].kill()
            pods.running[pod].popen.wait()
            step = pods.await_step(step + 200)
            self.assertGreaterEqual(pods.starts[pod], 2)
        self.assertEqual(pods.starts["server", 0], 1)
        # Without the coordinator all end, and begin anew.
        pods.running["server", 0].kill()
        pods.running["server", 0].popen.wait()
        pods.await_step(40)
        self.assertGreaterEqual(pods.starts["server", 0], 2)

    def test_its_parts_fit_each_other(self):
        found = documents()
        servers, workers = found["Job", "tessera-server"]["spec"], found["Job", "tessera-worker"]["spec"]
        job = yaml.safe_load(found["ConfigMap", "tessera-job"]["data"]["job.yaml"])
        service = found["Service", "tessera-servers"]["spec"]
        pod = servers["template"]
        self.assertEqual(servers["completionMode"], "Indexed")
        self.assertEqual([servers["completions"], servers["parallelism"]], 2 * [len(job["cluster"]["servers"])])
        self.assertEqual([workers["completions"], workers["parallelism"]], 2 * [job["cluster"]["workers"]])
        for rank, address in enumerate(job["cluster"]["servers"]):
            self.assertEqual(address, "tessera-server-%d.%s:%d" % (rank, pod["spec"]["subdomain"],
                                                                    service["ports"][0]["port"]))
        self.assertIn(("Service", pod["spec"]["subdomain"]), found)
        self.assertEqual(service["selector"], pod["metadata"]["labels"])
        self.assertTrue(service["publishNotReadyAddresses"])
        budget = found["PodDisruptionBudget", "tessera-servers"]["spec"]
        self.assertEqual((budget["minAvailable"], budget["selector"]["matchLabels"]),
                         (servers["completions"], pod["metadata"]["labels"]))
        policy = found["NetworkPolicy", "tessera-servers"]["spec"]
        self.assertEqual(policy["podSelector"]["matchLabels"], pod["metadata"]["labels"])
        callers = policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"].items()
        ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0]["ports"]}
        self.assertEqual(ports["grpc"], service["ports"][0]["port"])
        self.assertIn("0.0.0.0:%d" % ports["metrics"], pod["spec"]["containers"][0]["command"])
        self.assertEqual(pod["metadata"]["annotations"]["prometheus.io/port"], str(ports["metrics"]))
        self.assertEqual([rule["ports"][0]["port"] for rule in policy["ingress"]], [ports["grpc"], ports["metrics"]])
        probe = pod["spec"]["containers"][0]["readinessProbe"]["httpGet"]
        self.assertEqual(probe, {"path": "/readyz", "port": "metrics"})
        self.assertIn(probe["port"], ports)
        for each in (servers, workers):
            self.assertLessEqual(callers, each["template"]["metadata"]["labels"].items())
            self.assertEqual(each["template"]["spec"]["volumes"][0]["configMap"]["name"], "tessera-job")

    def test_the_image_has_what_the_manifest_starts(self):
        with open(os.path.join(MANIFESTS, "Containerfile")) as file:
            image = file.read()
        with open(os.path.join(ROOT, "deploy", "bundle.sh")) as file:
            bundle = file.read()
        self.assertIn("\nADD tessera.tar.gz /opt/\n", image)
        self.assertIn("out=${out:-tessera}\n", bundle)
        programs = re.findall(r"//\S+:(tessera\S*?)[)\s]", bundle)
        for name in ("tessera-server", "tessera-worker"):
            container = pod_of(name)["spec"]["containers"][0]
            self.assertEqual(container["command"][0], "/opt/tessera/" + name)
            self.assertIn(name, programs)


if __name__ == "__main__":
    unittest.main()
