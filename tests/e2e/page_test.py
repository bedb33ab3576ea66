"""The page in a browser: of real jobs, with tokens, under attack, and in Chromium where that is installed."""
import base64
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import unittest
import urllib.error
import urllib.request

from authority import Authority
from cluster import ENDLESS, TESSERA, Cluster, Process, Test, await_true, digits, tessera

CHROMIUM = shutil.which("chromium")
OPERATOR, VIEWER, WORKER = "operator-token-0123456789", "viewer-token-0123456789", "worker-token-0123456789"
BROWSER_MAX = 60


class Page(Test):
    def cluster(self, **keys):
        cluster = Cluster(self, digits(epochs=ENDLESS, batch=16, evaluate_every=5, **keys), start=False)
        return self.begin(cluster)

    def begin(self, cluster):
        cluster.start_server(0, "--page", "127.0.0.1:0")
        for rank in range(1, cluster.server_count):
            cluster.start_server(rank)
        for rank in range(cluster.job["cluster"]["workers"]):
            cluster.start_worker(rank)
        self.url = cluster.servers[0].page
        self.port = int(self.url.rstrip("/").rsplit(":", 1)[1])
        self.context = None
        return cluster

    def ask(self, path, token=None, post=False, **headers):
        """(code, text) of a request."""
        request = urllib.request.Request(self.url + path.lstrip("/"), data=b"" if post else None)
        if post:
            request.add_header("Origin", self.url.rstrip("/"))
        if token:
            request.add_header("Authorization", "Basic " + base64.b64encode((":" + token).encode()).decode())
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        opener = urllib.request.build_opener(Stays(), urllib.request.HTTPSHandler(context=self.context))
        try:
            with opener.open(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        self.addCleanup(client.close)
        return client

    def test_the_page_is_of_the_job_and_its_button_drains_it(self):
        cluster = self.cluster()
        cluster.await_status("an evaluation", lambda status: status.get("history"))
        code, text = self.ask("/")
        self.assertEqual(code, 200)
        self.assertLess(len(text), 100 << 10)
        for part in ("digits-test", "<h2>Workers</h2>", "<h2>Servers</h2>", "accuracy", "training begins"):
            self.assertIn(part, text)
        self.assertNotIn("://", text)
        status = json.loads(self.ask("/api/status")[1])
        self.assertEqual(status["job"], "digits-test")
        self.assertTrue(json.loads(self.ask("/api/history")[1])["history"])
        code, text = self.ask("/checkpoint", post=True)
        self.assertEqual((code, "checkpoint.directory" in text), (409, True))
        self.assertEqual(self.ask("/drain", post=True)[0], 303)
        report = cluster.finish()
        self.assertEqual(report["outcome"], "stopped")
        self.assertEqual(report["stop_reason"], "asked for on the page")
        kinds = [event["kind"] for event in report["events"]]
        for kind in ("attached", "joined", "admitted", "began", "evaluated", "drain", "left", "ended"):
            self.assertIn(kind, kinds)
        self.assertEqual([event["number"] for event in report["events"]], list(range(1, len(kinds) + 1)))

    def test_events_are_told_and_followed(self):
        cluster = self.cluster()
        cluster.await_step(1)
        code, out, error = tessera("status", cluster.coordinator, "--events")
        self.assertEqual(code, 0, error)
        self.assertIn("training begins", out)
        with urllib.request.urlopen(self.url + "api/events", timeout=20) as stream:
            self.assertEqual([stream.readline() for _ in range(2)], [b"event: event\n", b"id: 1\n"])
            self.assertEqual(json.loads(stream.readline()[len("data: "):])["kind"], "attached")
        follower = subprocess.Popen([TESSERA, "status", cluster.coordinator,
                                     "--events", "--follow", "--json"], stdout=subprocess.PIPE, text=True)
        cluster.drain()
        told = [json.loads(line) for line in follower.communicate(timeout=60)[0].splitlines()]
        self.assertEqual(follower.returncode, 0)
        self.assertEqual([int(event["number"]) for event in told], list(range(1, len(told) + 1)))
        self.assertEqual(told[-1]["kind"], "ended")
        cluster.finish()

    def test_tokens_and_tls_are_those_of_the_calls(self):
        authority = Authority(self, "page")
        certificate, key = authority.sign("host")
        tokens = self.path("tokens")
        with open(tokens, "w") as file:
            file.write("worker %s\noperator %s\nviewer %s\n%s\n" % (WORKER, OPERATOR, VIEWER, "all-token-0123456789"))
        job = digits(epochs=ENDLESS, batch=16, servers=1, workers=1)
        job["security"] = {"certificate": certificate, "private_key": key, "token_file": tokens}
        cluster = self.begin(Cluster(self, job, start=False))
        self.assertTrue(self.url.startswith("https://"))
        self.context = ssl.create_default_context(cafile=authority.certificate)
        self.context.check_hostname = False
        self.assertEqual(self.ask("/")[0], 401)
        self.assertEqual(self.ask("/", token="wrong-token-0123456789")[0], 401)
        await_true("the page", lambda: self.ask("/", token=VIEWER)[0] == 200)
        self.assertEqual(self.ask("/live")[0], 401)
        self.assertEqual(self.ask("/api/status")[0], 401)
        self.assertEqual(self.ask("/stop", token=VIEWER, post=True)[0], 401)
        self.assertEqual(self.ask("/stop", token=WORKER, post=True)[0], 401)
        self.assertEqual(self.ask("/stop", token=OPERATOR, post=True, Origin="https://evil.example")[0], 403)
        self.assertTrue(cluster.servers[0].alive)
        self.assertEqual(self.ask("/stop", token=OPERATOR, post=True)[0], 303)
        self.assertEqual(cluster.servers[0].exit_code(), 1)

    def test_rude_clients_stop_no_training(self):
        cluster = self.cluster()
        cluster.await_step(1)
        streams = []
        for _ in range(200):
            client = self.connect()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            streams.append(client)
        cluster.await_further(200)
        big = self.connect()
        try:
            big.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nA: " + b"x" * (1 << 20) + b"\r\n\r\n")
        except OSError:
            pass  # It was refused before it was whole.
        for client in streams:
            client.close()
        await_true("the page again", self.answers, within=40)
        self.assertEqual(self.ask("/../../../etc/passwd")[0], 404)
        self.assertEqual(self.ask("/stop", post=True, Origin="http://evil.example")[0], 403)
        self.assertEqual(self.ask("/", Host="evil.example")[0], 421)
        cluster.await_further(20)
        cluster.drain()
        cluster.finish()

    def answers(self):
        try:
            return self.ask("/")[0] == 200
        except OSError:
            return False

    def chromium(self, *flags):
        """The command that opens the page in a browser in which no name but this machine's address leads anywhere."""
        return [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--user-data-dir=" + self.path("profile"),
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", *flags, self.url]

    def title(self):
        """The title of the page that the browser shows, which its script sets; None: there is no browser yet."""
        try:
            with open(self.path("profile/DevToolsActivePort")) as file:
                port = int(file.readline())
            with urllib.request.urlopen("http://127.0.0.1:%d/json/list" % port, timeout=20) as answer:
                return next((tab["title"] for tab in json.load(answer) if tab["url"] == self.url), None)
        except (OSError, ValueError):
            return None

    @unittest.skipUnless(CHROMIUM, "chromium is not installed: Debian's chromium has it")
    def test_chromium_shows_it_and_asks_nobody_else(self):
        cluster = self.cluster()
        cluster.await_status("an evaluation", lambda status: status.get("history"))
        log = self.path("net.json")
        # The names of the browser's sockets have to be short.
        env = dict(os.environ, TMPDIR="/tmp")
        browser = Process(self, "browser", self.chromium("--remote-debugging-port=0", "--log-net-log=" + log), env)
        titles = set()

        def has_moved():
            titles.add(self.title() or "")
            return len([title for title in titles if "digits-test" in title and ", step " in title]) >= 2

        await_true("two steps in the title", has_moved, within=BROWSER_MAX,
                   explain=lambda: "%s\n%s" % (titles, browser.output()))
        browser.signal(signal.SIGTERM)
        browser.exit_code(within=BROWSER_MAX)
        with open(log) as file:
            text = file.read()
        # What the page asks for has the page as its initiator; the browser's own looks for updates have none.
        own = self.url.rstrip("/")
        asked = set(re.findall(r'"initiator":"(https?://[^"]*)".*?"url":"([^"]*)"', text))
        self.assertEqual({url for initiator, url in asked if initiator != own or not url.startswith(self.url)}, set())
        self.assertIn((own, self.url + "live"), asked)
        picture = self.path("page.png")
        subprocess.run(self.chromium("--window-size=400,900", "--timeout=4000", "--screenshot=" + picture), timeout=60,
                       check=True, capture_output=True, env=env)
        self.assertGreater(os.path.getsize(picture), 5000)
        cluster.drain()
        cluster.finish()


class Stays(urllib.request.HTTPRedirectHandler):
    """Follows nothing."""

    def redirect_request(self, *_):
        return None


if __name__ == "__main__":
    unittest.main()
