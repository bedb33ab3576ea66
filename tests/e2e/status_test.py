"""What a running job tells: `tessera status`, the health service, reflection."""
import json
import signal
import subprocess
import unittest

import grpc

from cluster import ENDLESS, PATIENCE, SOON, TESSERA, Cluster, Process, Test, await_true, digits, free_ports, tessera


def field(number, payload):
    """One length-delimited field of a protobuf message."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def call(address, method, request):
    with grpc.insecure_channel(address) as channel:
        return channel.unary_unary(method)(request, timeout=20)


def reflected(address, version="v1"):
    """The reflection service's list_services, as bytes."""
    with grpc.insecure_channel(address) as channel:
        ask = channel.stream_stream("/grpc.reflection.%s.ServerReflection/ServerReflectionInfo" % version)
        return next(iter(ask(iter([field(7, b"")]), timeout=20)))


class Status(Test):
    def cluster(self, **keys):
        cluster = Cluster(self, digits(epochs=ENDLESS, batch=16, evaluate_every=5, **keys))
        cluster.await_status("an evaluation", lambda status: status.get("history"))
        return cluster

    def end(self, cluster):
        cluster.drain()
        cluster.finish()

    def test_the_command_prints_the_message_that_the_call_answers(self):
        def shape(value):
            """What is not a number that grows: the names of all fields, and of which kind each is."""
            if isinstance(value, dict):
                return {key: shape(of) for key, of in value.items()}
            return [shape(value[0])] if isinstance(value, list) and value else type(value)

        cluster = self.cluster()
        shapes = []

        def are_alike():
            code, out, error = tessera("status", cluster.coordinator, "--json")
            self.assertEqual((code, error), (0, ""))
            # Python writes 1.0 where the command writes 1.
            shapes[:] = [shape(json.loads(text, parse_int=float)) for text in (out, json.dumps(cluster.status()))]
            return shapes[0] == shapes[1]

        # Between the two somebody may come to be waited for, or be no more.
        await_true("both are alike", are_alike, explain=lambda: "\n".join(map(str, shapes)))
        self.end(cluster)

    def test_status_names_the_method_in_words_and_every_process(self):
        cluster = self.cluster()
        # Servers count for themselves and tell now and then.
        cluster.await_status("all servers have counted", lambda status: all(
            int(s["counters"]["version"]) > 0 for s in status["servers"]))
        code, out, error = tessera("status", cluster.coordinator)
        self.assertEqual((code, error), (0, ""))
        self.contains(out, "digits-test", "data_parallel", "server", "worker", "accuracy", cluster.servers[1].address)
        status = cluster.status()
        self.assertEqual((status["job"], status["method"]), ("digits-test", "data_parallel"))
        self.assertGreater(len(status["method_description"].split()), 5)
        # Cut where the terminal ends.
        self.assertIn(status["method_description"][:60], out)
        self.assertEqual([s["address"] for s in status["servers"]], [s.address for s in cluster.servers])
        self.assertEqual(status["coordinator"]["address"], cluster.coordinator)
        self.assertEqual(sorted(m["rank"] for m in status["members"]), [0, 1])
        for member in status["members"]:
            self.assertLess(member["lease_age_seconds"], 10)
            self.assertGreater(member["examples_per_second"], 0)
        for server in status["servers"]:
            self.assertGreater(int(server["counters"]["version"]), 0)
            self.assertGreater(int(server["counters"]["rss_bytes"]), 1 << 20)
        self.end(cluster)

    def test_json_is_one_object_per_line(self):
        cluster = self.cluster()
        code, out, _ = tessera("status", cluster.coordinator, "--json")
        self.assertEqual((code, out.count("\n")), (0, 1))
        self.assertEqual(json.loads(out)["state"] in ("training", "evaluating"), True)
        watch = Process(self, "watch", [TESSERA, "status", cluster.coordinator, "--watch", "--json"])
        cluster.await_further()
        self.end(cluster)
        states = [json.loads(line)["state"] for line in watch.expect_exit(0).splitlines()]
        self.assertEqual(states[-1], "done")
        self.assertGreater(len(states), 1)

    def test_watch_ends_with_the_job_or_with_ctrl_c(self):
        cluster = self.cluster()
        watch = Process(self, "watch", [TESSERA, "status", cluster.coordinator, "--watch"])
        stopped = Process(self, "stopped", [TESSERA, "status", cluster.coordinator, "--watch"])
        for process in (watch, stopped):
            process.await_output("digits-test: ")
        stopped.signal(signal.SIGINT)
        stopped.expect_exit(-signal.SIGINT)
        self.assertTrue(watch.alive)
        self.end(cluster)
        self.assertIn("digits-test: done", watch.expect_exit(0))

    def test_watch_says_that_a_server_is_silent_or_gone_and_that_a_job_has_failed(self):
        with self.case("silent, and back"):
            cluster = self.cluster()
            watch = Process(self, "watch", [TESSERA, "status", cluster.coordinator, "--watch"])
            watch.await_output("digits-test: ")
            cluster.servers[0].freeze()
            watch.await_output("no news from " + cluster.coordinator)
            cluster.servers[0].thaw()
            self.end(cluster)
            self.assertIn("digits-test: done", watch.expect_exit(0))
        with self.case("gone"):
            cluster = self.cluster()
            watch = Process(self, "watch", [TESSERA, "status", cluster.coordinator, "--watch"])
            watch.await_output("digits-test: ")
            cluster.servers[0].kill()
            self.contains(watch.expect_exit(1), "tessera: connection lost while the job was ", cluster.coordinator)
        with self.case("failed"):
            cluster = self.cluster(lease="4s")
            watch = Process(self, "watch", [TESSERA, "status", cluster.coordinator, "--watch"])
            watch.await_output("digits-test: ")
            cluster.servers[1].kill()
            self.assertIn("tessera: the job has failed: ", watch.expect_exit(1))

    def test_watch_ends_where_its_output_has_no_room(self):
        cluster = self.cluster()
        with open("/dev/full", "w") as full:
            done = subprocess.run([TESSERA, "status", cluster.coordinator, "--watch"], stdin=subprocess.DEVNULL,
                                  stdout=full, stderr=subprocess.PIPE, text=True, timeout=SOON * PATIENCE)
        self.assertEqual(done.returncode, 1)
        self.assertIn("tessera: stdout: cannot be written", done.stderr)
        self.end(cluster)

    def test_other_servers_tell_of_themselves(self):
        cluster = self.cluster()
        code, out, _ = tessera("status", cluster.servers[1].address, "--json")
        status = json.loads(out)
        self.assertEqual((code, [s["rank"] for s in status["servers"]]), (0, [1]))
        self.contains(tessera("status", cluster.servers[1].address)[1],
                      "this server's own share; the whole job: tessera status " + cluster.coordinator)
        self.assertNotIn("own share", tessera("status", cluster.coordinator)[1])
        self.end(cluster)

    def test_nobody_there_is_said_soon(self):
        address = "127.0.0.1:%d" % free_ports(1)[0]
        for extra in ([], ["--watch"]):
            code, out, error = tessera("status", address, *extra, within=20)
            self.assertEqual((code, out), (1, ""))
            self.contains(error, address, "is a tessera-server running there?")
            self.assertTrue(error.startswith("tessera: no status from %s: " % address), error)
            self.assertEqual(error.count("status"), 1)

    def test_health_service_answers_serving(self):
        cluster = self.cluster()
        for server in cluster.servers:
            # HealthCheckResponse{status: SERVING}
            self.assertEqual(call(server.address, "/grpc.health.v1.Health/Check", b""), b"\x08\x01")
        self.end(cluster)

    def test_reflection_lists_the_services(self):
        cluster = self.cluster()
        everywhere = (b"tessera.v1.ParameterServer", b"tessera.v1.Status", b"grpc.health.v1.Health")
        first = reflected(cluster.servers[0].address)
        self.contains(first, b"tessera.v1.Coordinator", b"tessera.v1.Admin", *everywhere)
        self.contains(reflected(cluster.servers[1].address), *everywhere)
        self.contains(reflected(cluster.servers[1].address, "v1alpha"), *everywhere)
        self.end(cluster)

    def test_nonsense_from_the_network_does_not_disturb_the_job(self):
        cluster = self.cluster()
        for server in cluster.servers:
            for method in ("ParameterServer/Pull", "ParameterServer/Push", "Status/Get", "Coordinator/Join",
                           "Coordinator/Attach", "Nothing/There"):
                for request in (b"", b"\xff" * 100, b"\x0a\x7f", bytes(1 << 20)):
                    with grpc.insecure_channel(server.address) as channel:
                        try:
                            list(channel.stream_stream("/tessera.v1." + method)(iter([request]), timeout=5))
                        except grpc.RpcError:
                            pass
        cluster.await_further()
        self.end(cluster)


if __name__ == "__main__":
    unittest.main()
