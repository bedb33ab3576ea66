"""TLS, certificates of clients, tokens and their roles, with real processes."""
import json
import os
import unittest

import grpc

from authority import Authority
from cluster import WORKER as WORKER_BINARY
from cluster import Cluster, Process, Test, await_true, digits, run_to_end, tessera, write_job

WORKER = "worker-token-0123456789"
OPERATOR = "operator-token-0123456789"
VIEWER = "viewer-token-0123456789"
ENDLESS = 1000000


class Security(Test):
    def secure(self, authority, tokens=None, name="all", **keys):
        job = digits(**keys)
        certificate, key = authority.sign(name)
        job["security"] = {"certificate": certificate, "private_key": key, "authority": authority.certificate}
        if tokens:
            job["security"]["token_file"] = self.tokens("tokens-" + name, tokens)
        return job

    def tokens(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return file.name

    def all_tokens(self):
        return "worker %s\noperator %s\nviewer %s\n" % (WORKER, OPERATOR, VIEWER)

    def test_a_secured_job_ends_with_the_same_bits(self):
        authority = Authority(self, "home")
        plain = run_to_end(self, digits(epochs=2))
        for tokens in (None, self.all_tokens()):
            report = run_to_end(self, self.secure(authority, tokens, epochs=2))
            self.assertEqual(report["parameters_hash"], plain["parameters_hash"])

    @staticmethod
    def separated(job):
        job["model"] = {"input": [1, 8, 8], "layers": [
            {"conv2d": {"channels": 4, "kernel": 3}}, "relu", {"max_pool": {"kernel": 2}}, {"linear": {"units": 10}}]}
        return job

    def test_workers_that_speak_to_each_other_do_so_securely(self):
        keys = {"epochs": 1, "workers": 3, "method": {"layer_separation": {}}}
        authority = Authority(self, "home")
        plain = run_to_end(self, self.separated(digits(**keys)))
        job = self.separated(self.secure(authority, self.all_tokens(), **keys))
        self.assertEqual(run_to_end(self, job)["parameters_hash"], plain["parameters_hash"])
        # A worker that has nothing to show when it is called.
        job["security"].pop("certificate")
        job["security"].pop("private_key")
        worker = Process(self, "worker", [WORKER_BINARY, "--job", write_job(self, job), "--coordinator", "127.0.0.1:1"])
        self.contains(worker.expect_exit(2), "security.certificate: missing beside authority")

    def test_a_linear_worker_knows_the_tokens_of_those_who_call_it(self):
        tokens = ["worker-%d-token-0123456789" % rank for rank in range(3)]
        lines = ["worker %s\n" % token for token in tokens]
        job = self.separated(self.secure(Authority(self, "home"), "".join(lines), epochs=2, workers=3, lease="4s",
                                         method={"layer_separation": {}}))
        for known in (lines, [lines[0], lines[2]]):
            with self.case("%d tokens" % len(known)):
                cluster = Cluster(self, job, workers=0)
                for rank, text in enumerate([lines[0], lines[1], "".join(known)]):
                    file = self.tokens("tokens-%d-of-%d" % (rank, len(known)), text)
                    cluster.start_worker(rank, "--set", "security.token_file=" + file)
                refused = cluster.workers[1:2] if len(known) < 3 else []
                for worker in refused:
                    self.contains(worker.expect_exit(1), "activations: worker 2 at ", "is not one of this job's")
                self.assertEqual(cluster.finish(*refused)["outcome"], "finished")

    def test_who_may_look_and_who_may_end_it(self):
        authority = Authority(self, "home")
        job = self.secure(authority, self.all_tokens(), epochs=ENDLESS)
        cluster = Cluster(self, job)
        files = job["security"]
        viewer = self.tokens("viewer", "viewer %s\n" % VIEWER)
        flags = ["--authority", files["authority"], "--certificate", files["certificate"],
                 "--private-key", files["private_key"]]

        def status(*extra):
            return tessera("status", cluster.coordinator, "--json", *extra, within=20)

        await_true("it trains", lambda: status(*flags, "--token-file", viewer)[0] == 0 and
                   int(json.loads(status(*flags, "--token-file", viewer)[1])["step"]) > 5, explain=cluster.logs)
        self.assertFalse(json.loads(status(*flags, "--token-file", viewer)[1]).get("insecure"))
        # In plain text, without a certificate, without a token, with another's.
        for extra, want, words in (
                ((), 1, "One with TLS wants --authority"), (flags[:2], 1, "no status from"),
                (flags, 2, "token: none came with"),
                (flags + ["--token-file", self.tokens("other", "x" * 20)], 2, "is not one of this job's")):
            code, out, error = status(*extra)
            self.assertEqual((code, out), (want, ""), words)
            self.assertIn(words, error)
            self.assertEqual("is a tessera-server running there?" in error, want == 1, error)
        # One line, and none of gRPC's.
        other = ["--authority", Authority(self, "other").certificate]
        for watch in ((), ("--watch",)):
            code, out, error = tessera("status", cluster.coordinator, *other, *watch, within=20)
            self.assertEqual((code, out, len(error.splitlines())), (1, "", 1), error)
            self.assertTrue(error.startswith("tessera: no status"), error)
        code, _, error = tessera("checkpoint", cluster.coordinator, *flags, "--token-file", viewer, within=20)
        self.assertEqual(code, 2, error)

        def drain(token):
            with open(files["authority"], "rb") as a, open(files["private_key"], "rb") as k, \
                    open(files["certificate"], "rb") as c:
                credentials = grpc.ssl_channel_credentials(a.read(), k.read(), c.read())
            with grpc.secure_channel(cluster.coordinator, credentials) as channel:
                call = channel.unary_unary("/tessera.v1.Admin/Drain")
                return call(b"", metadata=(("authorization", "Bearer " + token),), timeout=20)

        for token, code in ((VIEWER, grpc.StatusCode.PERMISSION_DENIED), (WORKER, grpc.StatusCode.PERMISSION_DENIED),
                            ("y" * 20, grpc.StatusCode.UNAUTHENTICATED)):
            with self.assertRaises(grpc.RpcError) as refused:
                drain(token)
            self.assertEqual(refused.exception.code(), code)
        drain(OPERATOR)
        self.assertEqual(cluster.finish()["outcome"], "stopped")

    def test_a_worker_that_nobody_knows_stays_out_and_says_why(self):
        home, other = Authority(self, "home"), Authority(self, "other")
        job = self.secure(home, self.all_tokens(), workers=1, epochs=ENDLESS, lease="4s")
        cluster = Cluster(self, job, workers=0)

        def worker(name, security):
            path = write_job(self, dict(job, security=security), name + ".yaml")
            return cluster.start_worker(path=path)

        stranger = worker("stranger", dict(job["security"], token_file=self.tokens("other", "z" * 20)))
        self.assertIn("is not one of this job's", stranger.expect_exit(2))
        viewer = worker("viewer", dict(job["security"], token_file=self.tokens("viewer", "viewer %s" % VIEWER)))
        self.assertIn("none came with /tessera.v1.Coordinator/Join, want one of the role worker", viewer.expect_exit(2))
        # It believes another authority, and shows a certificate of that.
        certificate, key = other.sign("other")
        forged = worker("forged", dict(job["security"], certificate=certificate, private_key=key,
                                       authority=other.certificate))
        forged.await_output("waiting for")
        plain = worker("plain", {})
        plain.await_output("waiting for")
        # One that has only what workers need.
        good = worker("good", dict(job["security"], token_file=self.tokens("worker", "worker %s" % WORKER)))
        good.await_output("joined rank=0")
        forged.end()
        plain.end()
        cluster.drain()
        self.assertEqual(cluster.finish(stranger, viewer, forged, plain)["members"]["joined"], 1)

    def test_servers_do_not_listen_to_the_world_by_mistake(self):
        job = digits(workers=1)
        job["cluster"]["servers"] = ["192.0.2.1:7000"]
        cluster = Cluster(self, job, start=False)
        with self.assertRaises(AssertionError) as refused:
            cluster.start_server(0)
        self.contains(str(refused.exception), "can be reached from other machines", "security.insecure: true")
        self.assertEqual(cluster.servers[0].exit_code(), 2)
        job["security"] = {"insecure": True}
        cluster = Cluster(self, job, start=False)
        with self.assertRaises(AssertionError) as refused:
            cluster.start_server(0)
        # Not this machine's address: it got as far as listening.
        self.contains(str(refused.exception), "cannot be listened on")

    def test_files_that_do_not_fit_are_named_before_anything_starts(self):
        authority = Authority(self, "home")
        certificate, key = authority.sign("all")
        with open(authority.certificate) as file:
            whole = file.read()
        # Of two the second has a line too few; one has a letter that is none of base64.
        two = self.tokens("two.pem", whole + "".join(line for i, line in enumerate(whole.splitlines(True)) if i != 2))
        bad = self.tokens("bad.pem", whole[:100] + "?" + whole[101:])
        both = {"certificate": certificate, "private_key": key}
        for security, words in (
                (dict(both, authority=two), 'security.authority: certificate 2 of "%s" cannot be read: ' % two),
                ({"certificate": bad, "private_key": key}, 'security.certificate: certificate 1 of "%s"' % bad),
                ({"certificate": certificate}, "security.private_key: missing beside certificate"),
                ({"certificate": self.path("none.pem"), "private_key": key}, "want a file that can be read"),
                ({"certificate": key, "private_key": key}, "has no PEM block with a CERTIFICATE"),
                ({"certificate": certificate, "private_key": authority.sign("another")[1]},
                 "security.private_key: is not that of security.certificate"),
                ({"token_file": self.tokens("t", "x" * 20)}, "want TLS beside it"),
                ({"authority": authority.certificate}, "security.certificate: missing beside authority")):
            job = digits()
            job["security"] = security
            code, out, error = tessera("run", write_job(self, job))
            self.assertNotEqual(code, 0)
            self.assertIn(words, error)


if __name__ == "__main__":
    unittest.main()
