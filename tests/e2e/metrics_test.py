"""The metrics that Prometheus scrapes: of real jobs, while they run and when they end."""
import json
import os
import re
import shutil
import signal
import socket
import time
import unittest
import urllib.error
import urllib.request

import grpc

from cluster import ENDLESS, PATIENCE, SERVER, TESSERA, Cluster, Process, Test, await_true, digits, status_of, tessera
from cluster import write_job

JOB_NAME = re.compile(r'job_name="digits-test",?')
SAMPLE = re.compile(r'(tessera_\w+(?:\{.*\})?) (\S+)')


def scrape(address):
    """sample -> value, of all that begins with tessera_, without the label job_name that all have; None while nobody
    answers."""
    text = None
    for _ in range(3):
        try:
            with urllib.request.urlopen("http://%s/metrics" % address, timeout=20) as answer:
                text = answer.read().decode()
            break
        except OSError as error:
            # Whom a busy machine keeps from asking for a second after it has connected is cut off, and asks again.
            if not isinstance(getattr(error, "reason", error), (BrokenPipeError, ConnectionResetError)):
                return None
    if text is None:
        return None
    samples = {}
    for match in filter(None, map(SAMPLE.fullmatch, text.splitlines())):
        sample, named = JOB_NAME.subn("", match.group(1))
        assert named == 1, match.group(1)
        samples[sample.replace("{}", "")] = float(match.group(2))
    return samples


def drain(coordinator):
    """As an operator asks for it: a server that gets SIGTERM itself does not wait for a last scrape."""
    with grpc.insecure_channel(coordinator) as channel:
        channel.unary_unary("/tessera.v1.Admin/Drain")(b"", timeout=20)


def kill_the_worker(coordinator):
    """The only one of the job, which then fails."""
    (member,) = status_of(coordinator)["members"]
    os.kill(int(member["description"].split(":")[-1]), signal.SIGKILL)


class Metrics(Test):
    def cluster(self, workers=None, linger="0s", **keys):
        """Every server has an endpoint."""
        cluster = Cluster(self, digits(epochs=ENDLESS, batch=16, evaluate_every=5, **keys), start=False)
        for rank in range(cluster.server_count):
            cluster.start_server(rank, "--metrics", "127.0.0.1:0", "--metrics-linger", linger)
        for rank in range(cluster.job["cluster"]["workers"] if workers is None else workers):
            cluster.start_worker(rank)
        return cluster

    def connect(self, address):
        host, port = address.split(":")
        client = socket.create_connection((host, int(port)), timeout=20)
        self.addCleanup(client.close)
        return client

    def test_metrics_are_what_the_status_says(self):
        cluster = self.cluster(method={"ssp": {"bound": 2}})
        cluster.await_status("an evaluation", lambda status: status.get("history"))
        address = cluster.servers[0].metrics
        before, got = cluster.status(), scrape(address)
        # A status is shared by all who ask within 20 times what it took to make: the next one is another one.
        after = cluster.await_status("a newer status", lambda status: status["wall_seconds"] != before["wall_seconds"])
        self.assertEqual(got['tessera_job_info{method="ssp",digest="%s"}'
                             % before["job_digest"]], 1)
        self.assertEqual(got['tessera_members{state="training"}'] + got['tessera_members{state="evaluating"}'], 2)
        self.assertEqual(got["tessera_job_lease_timeout_seconds"], 10)
        for key, sample in (("step", "tessera_job_step"), ("epoch", "tessera_job_epoch"),
                            ("examples", "tessera_job_examples_total"),
                            ("train_seconds", "tessera_job_train_seconds_total"),
                            ("wall_seconds", "tessera_job_wall_seconds_total")):
            with self.subTest(key):
                # Metrics have 16 digits, of which the last is rounded.
                self.assertLessEqual(float(before[key]) * (1 - 1e-15), got[sample])
                self.assertLessEqual(got[sample] * (1 - 1e-15), float(after[key]))
        for rank in range(2):
            counted = [float(status["servers"][rank]["counters"]["pushes"]) for status in (before, after)]
            self.assertLessEqual(counted[0], got['tessera_server_pushes_total{server="%d"}' % rank])
            self.assertLessEqual(got['tessera_server_pushes_total{server="%d"}' % rank], counted[1])
            late = 'tessera_server_staleness_versions_%s{server="%d"%s}'
            self.assertEqual(got[late % ("bucket", rank, ',le="+Inf"')], got[late % ("count", rank, "")])
        # The others tell of themselves.
        other = scrape(cluster.servers[1].metrics)
        self.assertGreater(other['tessera_server_resident_memory_bytes{server="1"}'], 1 << 20)
        self.assertEqual(other["tessera_coordinator_away"], 0)
        self.none_of(other, "tessera_job_step", "tessera_member", 'server="0"')
        cluster.drain()
        report = cluster.finish()
        self.assertEqual((report["job_file"], report["overrides"]), (cluster.path, []))
        self.assertEqual(report["job_digest"], before["job_digest"])
        self.contains(report["command"], "tessera-server --job %s --rank 0 " % cluster.path)
        self.assertEqual(report["versions"]["workers"], [report["versions"]["server"]])
        # Rows have one label: top-1 is the accuracy, and more predictions hit no less.
        final = report["final"]
        self.assertEqual(final["top_k_accuracy"]["1"], final["test_accuracy"])
        self.assertLessEqual(final["top_k_accuracy"]["1"], final["top_k_accuracy"]["3"])
        self.assertAlmostEqual(final["top_k_accuracy"]["5"], 5 * final["precision_at"]["5"])

    def none_of(self, samples, *parts):
        for part in parts:
            self.assertEqual([sample for sample in samples if part in sample], [])

    def test_counters_grow_and_end_as_the_report_has_them(self):
        # Without anybody who asks the end would be served for an hour.
        cluster = self.cluster(linger="1h", method={"local_sgd": {"local_steps": 5}})
        address, series = cluster.servers[0].metrics, []
        cluster.await_status("training", lambda status: int(status["step"]) > 0)
        draining = False
        while cluster.servers[0].alive:
            if (got := scrape(address)) is not None:
                series.append(got)
            if not draining and len(series) > 20 and series[-1].get("tessera_evaluations_total", 0) > 1:
                draining = True
                drain(cluster.coordinator)
        report = cluster.finish()
        counters = [sample for sample in series[-1] if sample.split("{")[0].endswith("_total")]
        self.assertGreater(len(counters), 40)
        for earlier, later in zip(series, series[1:]):
            for sample in counters:
                self.assertLessEqual(earlier.get(sample, 0), later.get(sample, 0), sample)
        last = series[-1]
        self.assertEqual(last['tessera_job_state{state="done"}'], 1)
        self.assertEqual(last["tessera_job_examples_total"], report["examples"])
        self.assertEqual(last["tessera_job_exchanges_total"], report["traffic"]["exchanges"])
        for way in ("pull", "push"):
            self.assertEqual(last['tessera_job_payload_bytes_total{direction="%s"}' % way],
                             report["traffic"][way + "_payload_bytes"])
            self.assertEqual(last['tessera_job_wire_bytes_total{direction="%s"}' % way],
                             report["traffic"][way + "_wire_bytes"])
        # The text has 16 digits.
        for key, sample in (("test_loss", "test_loss"), ("test_accuracy", "test_accuracy_ratio")):
            self.assertAlmostEqual(last["tessera_evaluation_" + sample], report["final"][key], places=12)
        self.assertEqual(last["tessera_evaluations_total"], len(report["history"]))
        phases = 'tessera_member_phase_seconds_total{rank="%d",phase="%s"}'
        for phase in report["phases"]:
            for name in ("compute", "pull", "push", "wait", "evaluate"):
                self.assertAlmostEqual(last[phases % (phase["worker"], name)], phase[name + "_seconds"], places=9)
        # Where time goes is known before the end.
        middle = series[len(series) // 2]
        self.assertGreater(sum(middle[phases % (0, name)] for name in ("compute", "pull", "push", "wait")), 0)

    def test_workers_that_die_and_come_again_add_no_series_and_take_nothing_back(self):
        cluster = self.cluster(lease="3s", workers=2)
        cluster.await_step(20)
        address = cluster.servers[0].metrics
        # Each tells with its lease what it has done.
        losses = {'tessera_member_train_loss{rank="%d"}' % rank for rank in range(2)}
        await_true("both have told their loss", lambda: losses <= set(scrape(address)), explain=cluster.logs)
        before = scrape(address)
        for round in range(1, 3):
            cluster.workers[-1].kill()
            cluster.await_status("worker 1 is lost", lambda status: int(status["members_lost"]) == round)
            lost = scrape(address)
            self.assertEqual(lost["tessera_job_members_lost_total"], round)
            self.none_of(lost, 'tessera_member_lease_age_seconds{rank="1"}')
            cluster.start_worker(1)
            await_true("worker 1 trains again", lambda: scrape(address)['tessera_members{state="training"}'] == 2
                       and 'tessera_member_step{rank="1"}' in scrape(address), explain=cluster.logs)
        examples = 'tessera_member_examples_total{rank="1"}'
        await_true("worker 1 has trained on more", lambda: scrape(address)[examples] > before[examples] and
                   'tessera_member_train_loss{rank="1"}' in scrape(address), explain=cluster.logs)
        after = scrape(address)
        # What a state or a speed has a series for may differ, the ranks may not.
        ranks = [{sample for sample in samples if "rank=" in sample and "steps_per_second" not in sample}
                 for samples in (before, after)]
        self.assertEqual(ranks[0], ranks[1])
        cluster.drain()
        cluster.finish(*[worker for worker in cluster.workers if worker.popen.poll() == -signal.SIGKILL])

    def test_an_address_that_cannot_be_served_on_ends_with_2_before_anybody_is_told(self):
        path = write_job(self, digits(epochs=1))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            for address, words in (("127.0.0.1:%d" % port, 'port %d of "127.0.0.1:%d" is taken' % (port, port)),
                                   ("127.0.0.1", 'got "127.0.0.1", want HOST:PORT'),
                                   ("127.0.0.1:9400s", "want HOST:PORT"),
                                   ("no-such-host.invalid:0", 'host of "no-such-host.invalid:0" is not known')):
                with self.subTest(address):
                    server = Process(self, "server", [SERVER, "--job", path, "--rank", "0", "--listen", "127.0.0.1:0",
                                                      "--metrics", address])
                    out = server.expect_exit(2, within=100)  # A resolver may be slow to know of no such name.
                    self.assertEqual(out.count("\n"), 1, out)
                    self.contains(out, "tessera-server: --metrics: ", words)
                    code, out, error = tessera("run", path, "--metrics", address, within=100)
                    self.assertEqual((code, out, error.count("\n")), (2, "", 1), error)
                    self.contains(error, "tessera: --metrics: ", words)

    def test_run_prints_where_they_are_and_there_is_no_endpoint_without_the_flag(self):
        path = write_job(self, digits(servers=2, epochs=ENDLESS))
        run = Process(self, "run", [TESSERA, "run", path, "--metrics", "127.0.0.1:0"])
        run.await_output("/metrics\n")
        address = re.search(r"digits-test: metrics: http://(\S+)/metrics\n", run.output()).group(1)
        status_address = re.search(r"tessera status (\S+) --watch", run.output()).group(1)
        await_true("it trains", lambda: scrape(address).get("tessera_job_step", 0) > 0, explain=run.output)
        self.assertEqual(scrape(address)['tessera_server_registered{server="1"}'], 1)
        self.assertEqual(status_of(status_address)["job"], "digits-test")
        run.signal(signal.SIGTERM)
        run.expect_exit(-signal.SIGTERM)
        self.assertIsNone(scrape(address))
        plain = Process(self, "plain", [TESSERA, "run", path, "--set", "train.epochs=2"])
        self.assertNotIn(": metrics: ", plain.expect_exit(0))

    def test_a_job_that_fails_is_served_until_it_is_scraped_and_then_told_of(self):
        path = write_job(self, digits(epochs=ENDLESS, workers=1, servers=1, lease="3s"))
        report = self.path("failed.json")
        run = Process(self, "run", [TESSERA, "run", path, "--metrics", "127.0.0.1:0", "--metrics-linger", "1h",
                                    "--report", report, "--set", "name=a name"])
        run.await_output("/metrics\n")
        address = re.search(r"metrics: http://(\S+)/metrics\n", run.output()).group(1)
        status_address = re.search(r"tessera status (\S+) --watch", run.output()).group(1)
        await_true("it trains", lambda: int(status_of(status_address).get("step", 0)) > 0, explain=run.output)
        kill_the_worker(status_address)
        run.await_output("says so until it is scraped, for 1h at most")
        # All is written by then, but for how it ended.
        with open(report) as file:
            told = json.load(file)
        self.assertEqual(told["outcome"], "failed")
        self.contains(told["failure"], "all workers are gone")
        # As a person would look: nobody has scraped yet.
        with urllib.request.urlopen(urllib.request.Request("http://%s/metrics" % address, method="HEAD")) as answer:
            self.assertEqual((answer.status, answer.read()), (200, b""))
        self.assertTrue(run.alive)
        with urllib.request.urlopen("http://%s/metrics" % address, timeout=20) as answer:
            text = answer.read().decode()
        self.contains(text, 'tessera_job_failed{job_name="a name"} 1\n',
                      'tessera_job_state{job_name="a name",state="done"} 1\n')
        self.contains(run.expect_exit(1), "tessera: all workers are gone: worker 0 ended with signal 9 (Killed)")
        # The report names its job whole.
        self.assertEqual(told["job_file"], path)
        self.assertEqual(told["overrides"], ["name=a name"])
        self.assertEqual(told["job"], "a name")
        self.contains(told["command"], "tessera run " + path, "--set 'name=a name'")
        self.assertEqual(told["host"], socket.gethostname())
        self.assertRegex(told["started"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertRegex(told["versions"]["grpc"], r"^\d+\.\d+")

    @unittest.skipUnless(shutil.which("prometheus"), "prometheus is not installed: Debian's prometheus has it")
    def test_a_job_that_fails_raises_its_alert_in_prometheus(self):
        path = write_job(self, digits(epochs=ENDLESS, workers=1, servers=1, lease="3s"))
        run = Process(self, "run", [TESSERA, "run", path, "--metrics", "127.0.0.1:0", "--metrics-linger", "1m"])
        run.await_output("/metrics\n")
        address = re.search(r"metrics: http://(\S+)/metrics\n", run.output()).group(1)
        config = self.path("prometheus.yml")
        with open(config, "w") as file:
            json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                       "rule_files": [os.path.abspath("deploy/dashboards/alerts.yaml")],
                       "scrape_configs": [{"job_name": "tessera", "static_configs": [{"targets": [address]}]}]}, file)
        prometheus = Process(self, "prometheus", ["prometheus", "--config.file", config, "--storage.tsdb.path",
                                                  self.path("prometheus"), "--web.listen-address", "127.0.0.1:0"])
        prometheus.await_output('msg="Listening on" address=')
        at = re.search(r'msg="Listening on" address=(\S+)', prometheus.output()).group(1)

        def ask(query):
            with urllib.request.urlopen("http://%s/api/v1/%s" % (at, query), timeout=20) as answer:
                return json.load(answer)["data"]

        def is_ready():
            try:
                with urllib.request.urlopen("http://%s/-/ready" % at, timeout=20) as answer:
                    return answer.status == 200
            except urllib.error.HTTPError:
                return False

        await_true("prometheus is ready", is_ready, explain=prometheus.output)
        await_true("it is scraped", lambda: ask("query?query=tessera_job_failed==0")["result"],
                   explain=prometheus.output)
        status_address = re.search(r"tessera status (\S+) --watch", run.output()).group(1)
        kill_the_worker(status_address)
        run.expect_exit(1)
        # The endpoint is gone by then.
        self.assertIsNone(scrape(address))

        def failed():
            return [a for a in ask("alerts")["alerts"] if a["labels"]["alertname"] == "TesseraJobFailed"]

        await_true("the alert fires", failed, explain=prometheus.output)
        (alert,) = failed()
        self.assertEqual(alert["state"], "firing")
        self.assertEqual(alert["annotations"]["summary"], "the job digits-test at %s has failed" % address)
        prometheus.end()

    def test_an_endpoint_that_others_can_reach_is_warned_of(self):
        cluster = Cluster(self, digits(epochs=ENDLESS, servers=1, workers=1), start=False)
        cluster.start_server(0, "--metrics", "0.0.0.0:0", "--metrics-linger", "0s")
        cluster.start_worker(0)
        cluster.await_step(10)
        self.contains(cluster.servers[0].output(), "monitor: serving metrics address=0.0.0.0:",
                      "monitor: metrics without encryption or tokens, for anybody who reaches address=0.0.0.0:")
        cluster.drain()
        cluster.finish()
        near = self.cluster(servers=1, workers=1)
        self.assertNotIn("without encryption or tokens", near.servers[0].output())

    def test_clients_that_never_read_or_never_ask_hold_up_neither_training_nor_the_end(self):
        cluster = self.cluster()
        cluster.await_step(10)
        address = cluster.servers[0].metrics
        rude = [self.connect(address) for _ in range(40)]
        for index, client in enumerate(rude):
            client.send((b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", b"GET /met", b"\xff" * 100)[index % 3])
        cluster.await_further()
        # Those before it are cut off, a few each second.
        await_true("a scrape is answered", lambda: scrape(address) is not None, explain=cluster.logs)
        rude += [self.connect(address) for _ in range(4)]
        begin = time.monotonic()
        cluster.drain()
        cluster.finish()
        self.assertLess(time.monotonic() - begin, 20 * PATIENCE)

    def test_a_job_ends_cleanly_while_it_is_scraped(self):
        for number in range(3):
            with self.case("end %d" % number):
                cluster = self.cluster(servers=1)
                cluster.await_step(10)
                scrapers = [Process(self, "scraper", ["python3", "-c", "import urllib.request\nwhile True:\n"
                                                      " try: urllib.request.urlopen('http://%s/metrics').read()\n"
                                                      " except OSError: pass" % cluster.servers[0].metrics])
                            for _ in range(2)]
                cluster.await_further()
                cluster.drain()
                report = cluster.finish()
                self.assertEqual(report["outcome"], "stopped")
                for scraper in scrapers:
                    scraper.end()


if __name__ == "__main__":
    unittest.main()
