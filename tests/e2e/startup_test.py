"""Daemons started by hand: who waits for whom, and what is refused before anybody is told of it."""
import os
import signal
import socket
import unittest
import unittest.mock

from cluster import (SERVER, WORKER, Cluster, Process, Test, digits, free_ports, run_to_end, status_of, tessera,
                     write_job)


class ByHand(Test):
    def test_a_job_file_with_addresses_starts_four_processes(self):
        ports = free_ports(2)
        job = digits(epochs=10, evaluate_every=5)
        job["cluster"]["servers"] = ["127.0.0.1:%d" % port for port in ports]
        cluster = Cluster(self, job)
        report = cluster.finish()
        self.assertEqual(report["outcome"], "finished")
        self.assertGreater(report["final"]["test_accuracy"], 0.85)
        self.assertEqual([s.address for s in cluster.servers], job["cluster"]["servers"])

    def test_the_order_in_which_processes_start_does_not_matter(self):
        ports = free_ports(2)
        job = digits(epochs=2)
        job["cluster"]["servers"] = ["127.0.0.1:%d" % port for port in ports]
        cluster = Cluster(self, job, servers=0)
        for worker in cluster.workers:
            worker.await_output("waiting for coordinator at 127.0.0.1:%d" % ports[0])
        cluster.start_server(1)
        first = cluster.start_server(0)
        cluster.servers.sort(key=lambda server: server is not first)
        self.assertEqual(cluster.finish()["outcome"], "finished")

    def test_by_hand_and_run_give_the_same_parameters(self):
        job = digits(epochs=2, workers=2)
        by_hand = Cluster(self, job).finish()
        report = self.path("run.json")
        code, _, error = tessera("run", write_job(self, job), "--report", report, "--quiet")
        self.assertEqual((code, error), (0, ""))
        with open(report) as file:
            self.assertIn(by_hand["parameters_hash"], file.read())

    def test_a_server_that_listens_everywhere_announces_its_address_of_the_job(self):
        ports = free_ports(2)
        job = digits(epochs=2)
        job["cluster"]["servers"] = ["127.0.0.1:%d" % port for port in ports]
        job["security"] = {"insecure": True}
        cluster = Cluster(self, job, servers=0, workers=0)
        for rank, port in enumerate(ports):
            cluster.start_server(rank, "--listen", "0.0.0.0:%d" % port)
        status = cluster.await_status("both are here", lambda s: all(x["address"] for x in s["servers"]))
        self.assertEqual([s["address"] for s in status["servers"]], job["cluster"]["servers"])
        self.assertEqual(status["coordinator"]["address"], job["cluster"]["servers"][0])
        for rank in range(2):
            cluster.start_worker(rank)
        cluster.finish()

    def test_threads_without_work_sleep_soon_unless_the_user_says_otherwise(self):
        port = free_ports(1)[0]
        job = digits(servers=1, cluster={"threads": 2})
        with unittest.mock.patch.dict(os.environ):
            del os.environ["GOMP_SPINCOUNT"]
            for given in ({}, {"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "5"}):
                with self.case(str(given)):
                    worker = Process(self, "worker", [WORKER, "--job", write_job(self, job), "--coordinator",
                                                      "127.0.0.1:%d" % port], env=given)
                    worker.await_output("waiting for coordinator")
                    with open("/proc/%d/environ" % worker.pid) as file:
                        environ = dict(entry.split("=", 1) for entry in file.read().split("\0") if "=" in entry)
                    self.assertEqual(environ.get("GOMP_SPINCOUNT"),
                                     None if "OMP_WAIT_POLICY" in given else given.get("GOMP_SPINCOUNT", "1000"))
                    with open("/proc/%d/comm" % worker.pid) as file:
                        self.assertEqual(file.read().strip(), "tessera-worker")

    def test_many_servers_of_one_host_reach_the_first(self):
        # More than what is granted to strangers.
        report = run_to_end(self, digits(servers=80, workers=1, epochs=1))
        self.assertEqual(len(report["memory"]["server_peak_rss_bytes"]), 80)


class Waiting(Test):
    def test_workers_say_for_whom_they_wait(self):
        cluster = Cluster(self, digits(servers=2, workers=2), servers=1)
        for worker in cluster.workers:
            worker.await_output("waiting for server 1")
        status = cluster.status()
        self.assertEqual((status["state"], status["waiting_for"]), ("waiting", ["server 1"]))
        cluster.servers[0].await_output("control: waiting for server 1")
        cluster.start_server(1)
        self.assertEqual(cluster.finish()["outcome"], "finished")

    def test_a_worker_says_that_it_waits_for_another(self):
        cluster = Cluster(self, digits(workers=2), workers=1)
        cluster.workers[0].await_output("waiting for worker 1")
        cluster.start_worker(1)
        cluster.finish()

    def test_a_worker_says_why_it_does_not_reach_the_coordinator(self):
        address = "127.0.0.1:%d" % free_ports(1)[0]
        worker = Process(self, "worker", [WORKER, "--job", write_job(self, digits()), "--coordinator", address])
        worker.await_output("waiting for coordinator at %s, which is not reached: " % address)
        worker.await_output("Connection refused")
        worker.signal(signal.SIGTERM)
        self.contains(worker.expect_exit(0).splitlines()[-1], "ended")

    def test_a_server_says_why_it_does_not_reach_the_coordinator(self):
        address = "127.0.0.1:%d" % free_ports(1)[0]
        for replicas in (0, 1):
            with self.case("%d replicas" % replicas):
                job = write_job(self, digits(servers=2, cluster={"replicas": replicas}))
                server = Process(self, "server", [SERVER, "--job", job, "--rank", "1", "--listen", "127.0.0.1:0",
                                                  "--coordinator", address])
                server.await_output("control: waiting for the coordinator at=%s why=\"" % address)
                self.contains(server.output(), "Connection refused")
                server.end()

    def test_a_worker_that_is_asked_to_leave_while_it_waits_frees_its_rank_at_once(self):
        cluster = Cluster(self, digits(workers=2), workers=1)
        waiting = cluster.workers[0]
        waiting.await_output("waiting for worker 1")
        waiting.signal(signal.SIGTERM)
        self.contains(waiting.expect_exit(0).splitlines()[-1], "ended")
        for rank in range(2):
            cluster.start_worker(rank)
        report = cluster.finish(waiting)
        self.assertEqual(report["members"], {"joined": 2, "lost": 0, "partial_pushes": 0})
        self.assertEqual(len(report["traffic"]["by_worker"]), 2)

    def test_a_worker_that_gives_up_waiting_frees_its_rank(self):
        cluster = Cluster(self, digits(workers=2, lease="3s"), workers=1)
        cluster.workers[0].await_output("waiting for worker 1")
        cluster.workers[0].kill()
        cluster.await_status("its lease ends", lambda s: "worker 0" in s["waiting_for"])
        killed = cluster.workers[0]
        for rank in range(2):
            cluster.start_worker(rank)
        self.assertEqual(cluster.finish(killed)["members"], {"joined": 2, "lost": 0, "partial_pushes": 0})


class Refused(Test):
    def refused(self, command, *says):
        process = Process(self, "refused", command)
        self.contains(process.expect_exit(2), *says)

    def test_a_worker_of_another_job_is_refused_with_both_digests(self):
        cluster = Cluster(self, digits(), workers=0)
        other = write_job(self, digits(seed=2), "other.yaml")
        worker = cluster.start_worker(0, path=other)
        digests = [tessera("check", path)[1].split("digest")[1].split()[0] for path in (other, cluster.path)]
        self.contains(worker.expect_exit(2), "as keys differ: seed is 2, want ",
                      "; start it with the same job file", *digests)
        self.contains(cluster.servers[0].output(), "control: worker refused from=", "start it with the same job file")
        cluster.workers.clear()
        for rank in range(2):
            cluster.start_worker(rank)
        cluster.finish()

    def test_a_worker_that_is_sent_to_another_server_says_so(self):
        cluster = Cluster(self, digits(), workers=0)
        worker = cluster.start_worker(0, coordinator=cluster.servers[1].address)
        self.contains(worker.expect_exit(2), "coordinator at %s: there is none, want the address of server 0"
                      % cluster.servers[1].address)
        cluster.workers.clear()
        for rank in range(2):
            cluster.start_worker(rank)
        cluster.finish()

    def test_a_server_of_another_job_is_refused_with_both_digests(self):
        cluster = Cluster(self, digits(), servers=1, workers=0)
        other = write_job(self, digits(seed=2), "other.yaml")
        server = Process(self, "other server", [SERVER, "--job", other, "--rank", "1", "--listen", "127.0.0.1:0",
                                                "--coordinator", cluster.coordinator])
        digests = [tessera("check", path)[1].split("digest")[1].split()[0] for path in (other, cluster.path)]
        self.assertNotEqual(server.exit_code(), 0)
        self.contains(server.output(), "refused", "as keys differ: seed is 2, want ",
                      "; start it with the same job file", *digests)

    def test_a_worker_may_have_other_local_keys(self):
        cluster = Cluster(self, digits(), workers=1)
        cluster.start_worker(1, "--set", "cluster.threads=2", "--set", "cluster.memory_limit=2GiB")
        cluster.finish()

    def test_a_taken_port_is_one_precise_line(self):
        job = write_job(self, digits())
        with socket.socket() as owner:
            owner.bind(("127.0.0.1", 0))
            owner.listen()
            address = "127.0.0.1:%d" % owner.getsockname()[1]
            server = Process(self, "server", [SERVER, "--job", job, "--rank", "0", "--listen", address])
            output = server.expect_exit(2)
        self.contains(output, "port %s" % address.split(":")[1], "is taken", "want a free one")
        self.assertEqual(len(output.splitlines()), 1, output)
        self.assertTrue(output.startswith("tessera-server: "), output)

    def test_a_second_server_with_the_same_rank_is_refused(self):
        cluster = Cluster(self, digits(), workers=0)
        cluster.await_status("both are here", lambda status: all(s["address"] for s in status["servers"]))
        second = Process(self, "second", [SERVER, "--job", cluster.path, "--rank", "1", "--listen", "127.0.0.1:0",
                                          "--coordinator", cluster.coordinator])
        self.assertNotEqual(second.exit_code(), 0)
        self.contains(second.output(), "server 1: another process at %s holds this rank" % cluster.servers[1].address)
        for rank in range(2):
            cluster.start_worker(rank)
        cluster.finish()

    def test_a_second_worker_with_the_same_rank_is_refused(self):
        cluster = Cluster(self, digits(), workers=1)
        cluster.workers[0].await_output("waiting for worker 1")
        second = Process(self, "second", [WORKER, "--job", cluster.path, "--rank", "0", "--coordinator",
                                          cluster.coordinator])
        self.contains(second.expect_exit(1), "rank 0 is held by")
        cluster.start_worker(1)
        cluster.finish()

    def test_one_worker_more_than_there_are_rows_for_is_refused(self):
        cluster = Cluster(self, digits(workers=2, batch=600, epochs=20000), workers=1)
        cluster.workers[0].await_output("waiting for worker 1")
        second = cluster.start_worker(1)
        second.await_output("joined rank=1")
        third = cluster.start_worker(2)
        self.contains(third.expect_exit(2), "training rows are 1347, want at least 3 workers x 600")
        cluster.drain()
        cluster.finish(third)

    def test_wrong_flags_of_daemons_are_refused(self):
        job = write_job(self, digits())
        self.refused([SERVER], "--job")
        self.refused([SERVER, "--job", job], "--rank")
        self.refused([SERVER, "--job", job, "--rank", "0"], "--listen: not given")
        self.refused([SERVER, "--job", job, "--rank", "2", "--listen", "127.0.0.1:0"], "--rank: got 2, want 0 to 1")
        self.refused([SERVER, "--job", job, "--rank", "1", "--listen", "127.0.0.1:0"], "--coordinator: not given")
        self.refused([SERVER, "--job", job, "--rank", "0", "--listen", "nowhere"],
                     'tessera-server: --listen: got "nowhere", want host:port', "see tessera-server --help")
        self.refused([SERVER, "--job", job, "--rank", "0", "--listen", "0.0.0.0:0"], '"0.0.0.0:0"', "other machines")
        serve = [SERVER, "--job", job, "--rank", "0", "--listen", "127.0.0.1:0"]
        self.refused(serve + ["--report", self.path("missing/r.json")], "--report", "missing/r.json")
        # Before it serves, and anybody is told of it.
        missing = self.path("missing/server.address")
        output = Process(self, "refused", serve + ["--address-file", missing]).expect_exit(2)
        self.assertEqual(output, 'tessera-server: --address-file: "%s" cannot be written: No such file or directory; '
                         'name a file in a folder that exists\n' % missing)
        # Nor is anything lost that is read.
        with open(job) as file:
            text = file.read()
        self.refused(serve + ["--report", job], "--report", "would be written over", "which is read")
        self.refused(serve + ["--address-file", job], "--address-file", "would be written over", "which is read")
        with open(job) as file:
            self.assertEqual(file.read(), text)
        self.refused([SERVER, "--job", job, "--rank", "0", "--listen", "127.0.0.1:0", "--wrong"], "--wrong")
        self.refused([WORKER, "--job", job], "--coordinator: not given")
        self.refused([WORKER, "--job", job, "--rank", "-1", "--coordinator", "127.0.0.1:1"],
                     "--rank: got -1, want 0 or more")
        for program in (SERVER, WORKER):
            self.refused([program, "--job", job, "--rank", "0", "--log-level", "loud"],
                         '--log-level: got "loud", want debug, info, warning or error')
            self.refused([program, "--jobs", job, "--rank", "0"], 'did you mean "--job"?')
            for address in ("nowhere", "127.0.0.1:99999"):
                self.refused([program, "--job", job, "--rank", "1", "--coordinator", address],
                             '--coordinator: got "%s", want HOST:PORT' % address)
        self.refused([WORKER, "--job", job, "--coordinator", "127.0.0.1:1", "--wrong"], "--wrong")

    def test_wrong_keys_are_refused_by_every_program(self):
        job = digits()
        job["train"]["batch_size"] = -1
        path = write_job(self, job)
        for program in (SERVER, WORKER):
            self.refused([program, "--job", path, "--rank", "0"], "train.batch_size")

    def test_data_that_do_not_fit_the_model_are_refused_by_the_worker(self):
        job = digits()
        job["model"]["input"] = [65]
        self.refused([WORKER, "--job", write_job(self, job), "--coordinator", "127.0.0.1:1"], "64", "65")

    def test_an_unknown_device_is_refused_before_joining(self):
        self.refused([WORKER, "--job", write_job(self, digits(cluster={"device": "cuda"})), "--coordinator",
                      "127.0.0.1:1"], "device", "cuda")

    def test_a_precision_that_the_device_has_not_is_refused_before_joining(self):
        job = digits()
        job["train"]["precision"] = "tf32"
        self.refused([WORKER, "--job", write_job(self, job), "--coordinator", "127.0.0.1:1"], "train.precision",
                     "tf32", "f32 or bf16")


if __name__ == "__main__":
    unittest.main()
