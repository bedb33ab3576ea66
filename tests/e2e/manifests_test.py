"""deploy/manifests: the very jobs and commands of kubernetes.yaml, of kustomize's example and of Kubeflow's runtime, on
this machine, with a stand-in for what starts a pod again; and that their parts fit each other, the image, and
Kubernetes' types."""
import os
import re
import shutil
import subprocess
import unittest

import yaml

from authority import Authority
from cluster import (DIGITS, ROOT, SERVER, SOON, WORKER, Process, Test, await_true, free_ports, status_of,
                     tessera)
from kubernetes_types import Types

MANIFESTS = os.path.join(ROOT, "deploy", "manifests")
# What Kubeflow and JobSet say of the kinds that are theirs; the rest of them is Kubernetes' own.
KUBEFLOW = {
    "TrainingRuntime": {"apiVersion!": "string", "kind!": "string", "metadata!": "V1ObjectMeta",
                        "spec!": "RuntimeSpec"},
    "RuntimeSpec": {"mlPolicy": "MLPolicy", "podGroupPolicy": "any", "template!": "JobSetTemplate"},
    "MLPolicy": {"numNodes": "number", "torch": "any", "mpi": "any"},
    "JobSetTemplate": {"metadata": "V1ObjectMeta", "spec!": "JobSetSpec"},
    "JobSetSpec": {"replicatedJobs!": "[ReplicatedJob]", "network": "Network", "successPolicy": "SuccessPolicy",
                   "failurePolicy": "any", "startupPolicy": "any", "suspend": "boolean", "coordinator": "any",
                   "managedBy": "string", "ttlSecondsAfterFinished": "number"},
    "Network": {"enableDNSHostnames": "boolean", "subdomain": "string", "publishNotReadyAddresses": "boolean"},
    "SuccessPolicy": {"operator!": "string", "targetReplicatedJobs": "[string]"},
    "ReplicatedJob": {"name!": "string", "groupName": "string", "template!": "V1JobTemplateSpec", "replicas": "number",
                      "dependsOn": "any"},
    "TrainJob": {"apiVersion!": "string", "kind!": "string", "metadata!": "V1ObjectMeta", "spec!": "TrainJobSpec"},
    "TrainJobSpec": {"runtimeRef!": "RuntimeRef", "initializer": "any", "trainer": "Trainer", "suspend": "boolean",
                     "runtimePatches": "any", "activeDeadlineSeconds": "number", "managedBy": "string"},
    "RuntimeRef": {"apiGroup": "string", "kind": "string", "name!": "string"},
    "Trainer": {"image": "string", "command": "[string]", "args": "[string]", "env": "[V1EnvVar]",
                "numNodes": "number", "resourcesPerNode": "V1ResourceRequirements", "numProcPerNode": "number"},
}


def by_name(text):
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}


def documents(name="base/kubernetes.yaml"):
    with open(os.path.join(MANIFESTS, name)) as file:
        return by_name(file.read())


def pod_of(name):
    return documents()["Job", name]["spec"]["template"]


def jobs_of(found):
    """{"server": Job's spec, "worker": Job's spec}, of kubernetes.yaml or of what kustomize has made of it."""
    return {part: found["Job", "tessera-" + part]["spec"] for part in ("server", "worker")}


def jobs_of_kubeflow(found):
    """The same of a runtime, as its job set would have them."""
    runtime, train = found["TrainingRuntime", "tessera"]["spec"], found["TrainJob", "digits"]["spec"]
    jobs = {each["name"]: each["template"]["spec"] for each in runtime["template"]["spec"]["replicatedJobs"]}
    return {"server": jobs["server"], "worker": dict(jobs["node"], completions=train["trainer"]["numNodes"])}


def kubectl_fault():
    """Why `kubectl kustomize` cannot be used here; "": it can."""
    if shutil.which("kubectl") is None:
        return "kubectl is not installed: kustomize is in it"
    said = subprocess.run(["kubectl", "kustomize", os.path.join(MANIFESTS, "base")], capture_output=True, text=True)
    return "" if said.returncode == 0 else "kubectl's kustomize fails: " + said.stderr.strip()[-200:]


KUBECTL_FAULT = kubectl_fault()


def kustomized(folder):
    done = subprocess.run(["kubectl", "kustomize", folder], check=True, stdout=subprocess.PIPE, text=True)
    return by_name(done.stdout)


class Pods:
    """Runs the pods of `jobs` as restartPolicy: OnFailure says, with the job file `job`. `there` has what files and
    folders of a pod are on this machine, beside the image's own; `more` are keys that are set in all of them."""

    def __init__(self, test, job, jobs, *more, there=None):
        self.test, self.jobs = test, jobs
        names = yaml.safe_load(job)["cluster"]["servers"]
        self.addresses = ["127.0.0.1:%d" % port for port in free_ports(len(names))]
        self.there = dict(there or {}, **{"/opt/tessera/data/optdigits": DIGITS, "/opt/tessera/tessera-server": SERVER,
                                          "/opt/tessera/tessera-worker": WORKER,
                                          "/etc/tessera/job.yaml": test.path("job.yaml")})
        for name, address in zip(names, self.addresses):
            assert job.count(name) == 1
            job = job.replace(name, address)
        with open(test.path("job.yaml"), "w") as file:
            file.write(self.here(job))
        self.more = [word for each in more for word in ("--set", each)]
        self.running, self.starts = {}, {}
        for part, spec in jobs.items():
            for index in range(spec["completions"]):
                self.start((part, index))

    def here(self, text):
        for path, place in self.there.items():
            text = text.replace(path, place)
        return text

    def start(self, pod):
        part, index = pod
        words = {"$(JOB_COMPLETION_INDEX)": str(index)}
        if part == "server":
            words["0.0.0.0:7000"] = self.addresses[index]
            words["0.0.0.0:9464"] = "127.0.0.1:0"
        # Servers and workers have different secrets at the same place.
        template = self.jobs[part]["template"]["spec"]
        command = [self.here(words.get(word, word)).replace("TOKENS", part)
                   for word in template["containers"][0]["command"]]
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
        self.train(Pods(self, self.job_in(documents()), jobs_of(documents())))

    def job_in(self, found, name="tessera-job"):
        return found["ConfigMap", name]["data"]["job.yaml"]

    def train(self, pods):
        for process in pods.running.values():
            process.expect_exit(0)
        self.assertIn("accuracy=0.9", pods.running["server", 0].output())

    def test_kubeflows_runtime_trains_its_job_to_the_end(self):
        found = documents("kubeflow.yaml")
        jobs = jobs_of_kubeflow(found)
        job = self.job_in(found, "digits")
        self.assertEqual(yaml.safe_load(job)["cluster"]["servers"],
                         ["digits-server-0-%d.digits:7000" % rank for rank in range(jobs["server"]["completions"])])
        self.assertEqual(yaml.safe_load(job)["cluster"]["workers"], jobs["worker"]["completions"])
        self.assertEqual(found["TrainJob", "digits"]["spec"]["runtimeRef"]["name"], "tessera")
        self.train(Pods(self, job, jobs))

    @unittest.skipIf(KUBECTL_FAULT, KUBECTL_FAULT)
    def test_the_example_of_kustomize_trains_with_tls_tokens_and_checkpoints(self):
        found = kustomized(os.path.join(MANIFESTS, "example"))
        jobs, job = jobs_of(found), self.job_in(found)
        self.assertEqual(jobs["server"]["completions"], len(yaml.safe_load(job)["cluster"]["servers"]))
        self.assertEqual(found["PodDisruptionBudget", "tessera-servers"]["spec"]["minAvailable"],
                         jobs["server"]["completions"])
        self.assertEqual(jobs["worker"]["completions"], yaml.safe_load(job)["cluster"]["workers"])
        self.assertNotIn("insecure", job)
        there = self.mounted(jobs)
        pods = Pods(self, job, jobs, "train.epochs=1000000", there=there)
        # Who has no certificate hears nothing, and whose token is a worker's ends no job.
        flags = ["--authority", there["/run/tessera/tls/ca.crt"], "--certificate", there["/run/tessera/tls/tls.crt"],
                 "--private-key", there["/run/tessera/tls/tls.key"], "--token-file"]
        for name, token in (("w", "worker " + "w" * 24), ("o", "operator " + "o" * 24)):
            with open(self.path(name), "w") as file:
                file.write(token + "\n")
        await_true("all train", lambda: "evaluation=2 " in pods.running["server", 0].output(), 2 * SOON, pods.logs)
        self.assertNotEqual(tessera("status", pods.addresses[0])[0], 0)
        refused = tessera("drain", pods.addresses[0], *flags, self.path("w"))
        self.assertEqual((refused[0], "operator" in refused[2]), (2, True), refused)
        self.assertEqual(tessera("drain", pods.addresses[0], *flags, self.path("o"))[0], 0)
        for process in pods.running.values():
            process.expect_exit(0)
        self.assertTrue(os.listdir(self.path("srv/checkpoints")))

    def mounted(self, jobs):
        """{path in the pods: path here}, with secrets made for this machine and files readable as the volumes say."""
        authority = Authority(self, "all")
        certificate, key = authority.sign("pods")
        tokens = {"tokens": "worker %s\noperator %s\n" % ("w" * 24, "o" * 24), "worker": "worker %s\n" % ("w" * 24)}
        for part, spec in jobs.items():
            pod = spec["template"]["spec"]
            volumes = {each["name"]: each for each in pod["volumes"]}
            mounts = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
            self.assertLessEqual(set(mounts.values()), set(volumes))
            secret = volumes[mounts["/run/tessera/tokens"]]["secret"]
            item, = secret["items"]
            os.makedirs(self.path("tokens-" + part))
            path = self.path("tokens-%s/%s" % (part, item["path"]))
            with open(path, "w") as file:
                file.write(tokens[item["key"]])
            os.chmod(path, secret["defaultMode"])
            os.chmod(key, volumes[mounts["/run/tessera/tls"]]["secret"]["defaultMode"])
            self.assertIn("/srv/tessera", mounts)
        os.makedirs(self.path("srv"))
        return {"/run/tessera/tls/tls.crt": certificate, "/run/tessera/tls/tls.key": key,
                "/run/tessera/tls/ca.crt": authority.certificate, "/srv/tessera": self.path("srv"),
                "/run/tessera/tokens": self.path("tokens-") + "TOKENS"}

    @unittest.skipIf(KUBECTL_FAULT, KUBECTL_FAULT)
    def test_all_components_fit_each_other_and_kubernetes_types(self):
        there = self.path("manifests")
        shutil.copytree(MANIFESTS, there)
        with open(os.path.join(there, "example", "kustomization.yaml")) as file:
            text = file.read()
        with open(os.path.join(there, "example", "kustomization.yaml"), "w") as file:
            file.write(text.replace("  # - ../components/", "  - ../components/"))
        named = set(re.findall(r"- \.\./components/(\w+)", text))
        self.assertEqual(named, set(os.listdir(os.path.join(there, "components"))))
        found = kustomized(os.path.join(there, "example"))
        self.assert_types(found)
        worker = found["Job", "tessera-worker"]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(worker["resources"]["limits"], {"nvidia.com/gpu": "1"})
        for name in ("tessera-server", "tessera-worker"):
            container = found["Job", name]["spec"]["template"]["spec"]["containers"][0]
            self.assertIn("cluster.coordinator.etcd=[etcd:2379]", container["command"])
            self.assertEqual(container["image"], "registry.example.com/tessera:0.2.0")

    def test_all_manifests_are_of_kubernetes_types(self):
        self.assert_types(documents())
        self.assert_types(documents("kubeflow.yaml"))

    def assert_types(self, found):
        types = Types()
        types.types.update(KUBEFLOW)
        for document in found.values():
            kind = document["kind"]
            faults = types.faults(document, kind, kind) if kind in KUBEFLOW else types.document_faults(document)
            self.assertEqual(faults, [])

    def test_what_kubernetes_would_refuse_is_seen(self):
        types = Types()
        for change, fault in ((lambda pod: pod["containers"][0].pop("name"), "has no name"),
                              (lambda pod: pod.update(restartpolicy="Never"), "restartpolicy, which no V1PodSpec has"),
                              (lambda pod: pod.update(terminationGracePeriodSeconds="30"), "is '30', want number"),
                              (lambda pod: pod.update(volumes={"name": "job"}), "want a list")):
            document = documents()["Job", "tessera-worker"]
            change(document["spec"]["template"]["spec"])
            faults = types.document_faults(document)
            self.assertEqual(len(faults), 1, faults)
            self.assertIn(fault, faults[0])

    def test_pods_have_a_root_that_is_read_only_and_no_rights(self):
        found = documents()
        for spec in list(jobs_of(found).values()) + list(jobs_of_kubeflow(documents("kubeflow.yaml")).values()):
            pod = spec["template"]["spec"]
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertEqual(pod["containers"][0]["securityContext"],
                             {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
                              "capabilities": {"drop": ["ALL"]}})

    def test_whatever_crashes_comes_back_and_the_job_goes_on(self):
        pods = Pods(self, self.job_in(documents()), jobs_of(documents()), "train.epochs=100000",
                    "cluster.lease_timeout=4s")
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
