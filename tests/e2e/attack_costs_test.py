"""What each attack of attacks.py costs a job of two servers and two workers on the same machine: its speed and memory.

    bazel test //tests/e2e:attack_costs_test --test_output=all            # some ten minutes; wants the machine alone

Each attack lasts for TESSERA_ATTACK_SECONDS, between two spans as long without it, and its share of their speed is
printed and held to what docs/operating/security.md promises. The attacker takes a core of the same machine, which is
part of the share. hostile_test has the short forms, which hold on a busy machine.
"""
import json
import os
import ssl
import time
import unittest

import attacks
from authority import Authority
from cluster import SOON, Cluster, Test, await_true, digits, memory, tessera

ENDLESS = 1000000
GROWTH_MAX = 256 << 20
SECONDS = float(os.environ.get("TESSERA_ATTACK_SECONDS", "5"))
VIEWER = "viewer-token-0123456789"
# Of its own speed: what an attacker may leave it who can speak with the server, and one who has no certificate.
SHARE_MIN, SHARE_OF_STRANGERS_MIN = 0.5, 0.9


class AttackCosts(Test):
    test_max = 1800

    def rate(self, status):
        first, begin = int(status()["step"]), time.monotonic()
        time.sleep(SECONDS)
        return (int(status()["step"]) - first) / (time.monotonic() - begin)

    def measure(self, cluster, status, kinds, connections, share_min, **how):
        """Prints a row for each attack on server 0, and holds it to `share_min`."""
        zero = cluster.servers[0]
        before = self.rate(status)
        for kind in kinds:
            with self.subTest(kind.__name__):
                memory_before = memory(zero)
                with attacks.Attack(zero.address, kind, connections, **how) as attack:
                    during = self.rate(status)
                grown = memory(zero) - memory_before
                after = self.rate(status)
                share = 2 * during / (before + after)
                before = after
                print("%-22s share %.2f (%.0f of %.0f steps/s), %+.0f MB, closed %d, refused %d" % (
                    kind.__name__, share, during, during / share, grown / 1e6, attack.closed, attack.refused),
                    flush=True)
                self.assertGreaterEqual(share, share_min)
                self.assertLess(grown, GROWTH_MAX)
        for process in cluster.servers + cluster.workers:
            self.assertTrue(process.alive, cluster.logs())

    def end(self, cluster):
        cluster.drain()
        report = cluster.finish()
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))

    def test_in_plain_text(self):
        cluster = Cluster(self, digits(epochs=ENDLESS))
        cluster.await_step(20)
        self.measure(cluster, cluster.status, attacks.FRAMES + (attacks.unknown_methods, attacks.connections), 16,
                     SHARE_MIN)
        self.end(cluster)

    def secure(self, with_authority, with_tokens):
        """A job with TLS, how to ask it, and the context of a client that it takes."""
        authority = Authority(self, "home")
        certificate, key = authority.sign("host")
        job = digits(epochs=ENDLESS)
        job["security"] = {"certificate": certificate, "private_key": key}
        context = ssl.create_default_context(cafile=authority.certificate)
        # Whoever calls needs to know who signed the servers' certificates, and is asked for one of its own with it.
        job["security"]["authority"] = authority.certificate
        flags = []
        if with_tokens:
            tokens = self.path("tokens")
            with open(tokens, "w") as file:
                file.write("worker worker-token-0123456789\noperator operator-token-012345\nviewer %s\n" % VIEWER)
            job["security"]["token_file"] = tokens
            flags = ["--token-file", tokens]
        if with_authority:
            context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["h2"])
        cluster = Cluster(self, job)
        flags = cluster.client_flags() + flags

        def status():
            code, out, error = tessera("status", cluster.coordinator, "--json", *flags)
            self.assertEqual(code, 0, error + cluster.logs())
            return json.loads(out)

        await_true("it trains", lambda: int(status()["step"]) > 20, SOON, cluster.logs)
        return cluster, status, context

    def test_inside_tls(self):
        cluster, status, context = self.secure(with_authority=True, with_tokens=True)
        self.measure(cluster, status, attacks.FRAMES, 4, SHARE_MIN, context=context, token=VIEWER.encode())
        self.end(cluster)

    def test_handshakes_of_those_who_have_a_certificate(self):
        cluster, status, context = self.secure(with_authority=True, with_tokens=False)
        self.measure(cluster, status, (attacks.connections,), 4, SHARE_MIN, context=context)
        self.end(cluster)

    def test_handshakes_of_those_who_have_none(self):
        cluster, status, context = self.secure(with_authority=False, with_tokens=True)
        self.measure(cluster, status, (attacks.connections, attacks.silence), 4, SHARE_OF_STRANGERS_MIN,
                     context=context)
        self.end(cluster)


if __name__ == "__main__":
    unittest.main()
