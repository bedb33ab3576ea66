"""Strangers who send what no client of gRPC would, to a job of two servers and two workers on this machine."""
import json
import ssl
import time
import unittest

import attacks
from authority import Authority
from cluster import SOON, Cluster, Test, await_true, digits, memory, tessera

ENDLESS = 1000000
GROWTH_MAX = 256 << 20
# Of its own speed a job keeps half; here other tests may run beside it, and the attack takes a core itself.
STEPS_DURING = 40
VIEWER = "viewer-token-0123456789"
# Each is closed for a reason of its own.
REASONS = {
    attacks.unacknowledged: "has not acknowledged SETTINGS",
    attacks.acknowledged_early: "too many calls at once",
    attacks.reset_at_once: "too many calls are reset",
    attacks.headers_without_end: None,  # gRPC, or the gate
    attacks.headers_of_nothing: "too many CONTINUATION frames",
    attacks.settings: "too many PING, SETTINGS or empty frames",
    attacks.priorities: "too many PING, SETTINGS or empty frames",
    attacks.empty_data: "too many PING, SETTINGS or empty frames",
    attacks.unknown_frames: "too many PING, SETTINGS or empty frames",
    attacks.made_to_reset: None,
    attacks.pings: None,
}


class Hostile(Test):
    test_max = 240

    def attack(self, cluster, kinds, connections, status, **how):
        """Each in turn, on server 0, while the job trains on."""
        zero = cluster.servers[0]

        def await_further(steps, within):
            first, until = int(status()["step"]), time.monotonic() + within
            while int(status()["step"]) < first + steps:
                self.assertLess(time.monotonic(), until, cluster.logs())

        before = memory(zero)
        for kind in kinds:
            with self.subTest(kind.__name__):
                said = len(zero.output())
                begun = time.monotonic()
                with attacks.Attack(zero.address, kind, connections, **how) as attack:
                    await_further(STEPS_DURING, SOON)
                    # The connections of the one before may have waited for their turn until now.
                    await_true("it is closed", lambda: attack.closed > 0 and (REASONS[kind] or "") in
                               zero.output()[said:], explain=cluster.logs)
                    self.assertLess(memory(zero) - before, GROWTH_MAX)
                told = zero.output()[said:]
                if REASONS[kind]:
                    self.assertIn("gate: connection closed host=127.0.0.1 why=", told)
                # Eight lines for each second that has begun.
                self.assertLessEqual(told.count("gate: "), 8 * (time.monotonic() - begun + 2))
        for process in cluster.servers + cluster.workers:
            self.assertTrue(process.alive, cluster.logs())

    def test_frames_that_no_client_sends_do_not_stop_a_job(self):
        cluster = Cluster(self, digits(epochs=ENDLESS))
        cluster.await_step(20)
        # The workers' own connections are of this host, too.
        self.attack(cluster, REASONS, 8, cluster.status)
        cluster.drain()
        report = cluster.finish()
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))

    def test_frames_inside_tls_do_not_stop_a_job(self):
        authority = Authority(self, "home")
        certificate, key = authority.sign("host")
        job = digits(epochs=ENDLESS)
        tokens = self.path("tokens")
        with open(tokens, "w") as file:
            file.write("worker worker-token-0123456789\noperator operator-token-012345\nviewer %s\n" % VIEWER)
        job["security"] = {"certificate": certificate, "private_key": key, "authority": authority.certificate,
                           "token_file": tokens}
        cluster = Cluster(self, job)
        flags = cluster.client_flags() + ["--token-file", tokens]

        def status():
            code, out, error = tessera("status", cluster.coordinator, "--json", *flags)
            self.assertEqual(code, 0, error + cluster.logs())
            return json.loads(out)

        until = time.monotonic() + SOON
        while int(status()["step"]) < 20:
            self.assertLess(time.monotonic(), until, cluster.logs())
        context = ssl.create_default_context(cafile=authority.certificate)
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["h2"])
        self.attack(cluster, (attacks.unacknowledged, attacks.acknowledged_early, attacks.reset_at_once,
                              attacks.headers_of_nothing), 4, status, context=context, token=VIEWER.encode())
        # Whoever has no certificate costs handshakes.
        stranger = ssl.create_default_context(cafile=authority.certificate)
        with attacks.Attack(cluster.coordinator, attacks.silence, 4, context=stranger):
            first = int(status()["step"])
            until = time.monotonic() + SOON
            while int(status()["step"]) < first + STEPS_DURING:
                self.assertLess(time.monotonic(), until, cluster.logs())
        cluster.drain()
        report = cluster.finish()
        self.assertEqual((report["outcome"], report["members"]["lost"]), ("stopped", 0))


if __name__ == "__main__":
    unittest.main()
