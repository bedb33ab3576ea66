"""The scripts that measure independent subnets, on the digits: what they print, where they stop, what they leave."""
import argparse
import importlib
import os
import random
import re
import signal
import subprocess
import sys
import unittest
import unittest.mock

from cluster import DIGITS, JOBS, SOON, TESSERA, Process, Test, await_true, children_of, exists

SUBNETS = os.path.abspath("bench/training/subnets.py")
LIMITED = os.path.abspath("bench/network/limited.py")
GRID = os.path.abspath("bench/network/grid.py")
PLANNED = os.path.abspath("bench/network/planned.py")
DIGITS_JOB = [DIGITS, "--job", os.path.join(JOBS, "digits_ist.yaml"), "--tessera", TESSERA]
# Digits end long before this; no test accuracy is ever this good.
NEVER = ["--to", "1.0", "--epochs", "1000000"]

sys.path.insert(0, os.path.dirname(SUBNETS))
runs = importlib.import_module("runs")


def run(*arguments):
    """A script to its end: (exit code, stdout, stderr)."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, done.stderr


def history(*points):
    return [{"seconds": seconds, "step": step, "epoch": 1.0, "test_accuracy": accuracy}
            for seconds, step, accuracy in points]


def report(*points, payload=0):
    return {"history": history(*points), "steps": points[-1][1],
            "traffic": {"pull_payload_bytes": payload, "push_payload_bytes": payload}}


class Runs(unittest.TestCase):
    options = argparse.Namespace(to=0.75, workers=[2])

    def test_a_crossing_lies_between_the_evaluations_before_and_after_it(self):
        way = history((2, 10, 0.5), (4, 20, 0.9), (6, 30, 0.7), (8, 40, 0.95))
        self.assertAlmostEqual(runs.crossing(way, 0.7), 3)
        self.assertAlmostEqual(runs.crossing(way, 0.7, "step"), 15)
        self.assertAlmostEqual(runs.crossing(way, 0.25), 1)
        self.assertIsNone(runs.crossing(way, 0.96))

    def test_a_median_stands_where_most_came_there(self):
        self.assertEqual(runs.median([3, None, 1]), 2)
        self.assertIsNone(runs.median([3, None]))

    def test_a_cell_counts_bytes_up_to_the_crossing_and_says_what_was_reached_at_the_end(self):
        self.assertEqual(runs.cell([report((2, 10, 0.7), (4, 20, 0.8), payload=10 ** 9)], self.options),
                         "3.0 s, 1.50 GB")
        self.assertEqual(runs.cell([report((2, 10, 0.43), (4, 20, 0.41), payload=10 ** 6)], self.options),
                         "> 4.0 s, 0.43 reached, 2 MB")

    def test_the_table_stands_beside_the_papers_at_its_accuracy_alone(self):
        found = {"data_parallel": {2: [report((4, 20, 0.5))]}, "ist": {2: [report((1, 10, 0.75))]}}
        text = runs.table(self.options, found)
        self.assertIn("| paper: 2 |", text)
        self.assertIn("| ist | 1.0 s, 0 MB | 812 s |", text)
        self.assertIn("| data_parallel / ist | > 4.0 | 5.6 |", text)
        self.assertNotIn("paper", runs.table(argparse.Namespace(to=0.8, workers=[2]), found))


class Grid(Test):
    def test_a_cell_is_measured_and_planned_and_can_be_drawn_again(self):
        kept = self.path("cells.json")
        code, out, error = run(GRID, "--tessera", TESSERA, "--steps", "4", "--rates", "100", "--delays", "20",
                               "--methods", "local_sgd", "async_sgd", "--seconds", "1", "--results", kept)
        self.assertEqual(code, 0, error)
        self.assertEqual(len(re.findall(r"^\| 100 Mbit/s, 20 ms \| 0\.\d\d / 0\.\d\d \|$", out, re.M)), 2, out)
        self.assertIn("\n2 cells; measured and planned differ by a factor of ", out)
        self.assertEqual(run(GRID, "--redraw", kept), (0, out, ""))


class Subnets(Test):
    def test_every_method_gets_there_and_ist_moves_less(self):
        code, out, error = run(SUBNETS, *DIGITS_JOB, "--workers", "2", "--to", "0.9", "--seeds", "7", "8",
                               "--methods", "data_parallel", "ist")
        self.assertEqual((code, error), (0, ""))
        self.assertEqual(len(re.findall(r"^(?:data_parallel|ist), 2 workers, seed [78]: [\d.]+ s, ", out, re.M)), 4)
        moved = dict(re.findall(r"^\| (data_parallel|ist) \| [\d.]+ s, (\d+) MB \|", out, re.M))
        self.assertGreater(int(moved["data_parallel"]), 5 * int(moved["ist"]))

    def test_a_run_that_takes_too_long_is_ended_and_says_how_far_it_came(self):
        code, out, error = run(SUBNETS, *DIGITS_JOB, "--workers", "2", "--methods", "ist", "--seconds-max", "10",
                               *NEVER)
        self.assertEqual((code, error), (0, ""))
        self.assertRegex(out, r"\| ist \| > [\d.]+ s, 0\.\d\d reached, ")

    def test_its_job_ends_with_it(self):
        script = Process(self, "subnets", [sys.executable, SUBNETS, *DIGITS_JOB, "--workers", "2", *NEVER])
        family = []

        def complete():
            family[:] = list(children_of(script.pid))
            family.extend(grandchild for child in family[:1] for grandchild in children_of(child))
            return len(family) == 5

        await_true("tessera run, two servers and two workers are there", complete, explain=script.output)
        script.kill()
        await_true("they are gone", lambda: not any(exists(process) for process in family))

    def test_ensembles_are_compared_at_both_depths(self):
        code, out, error = run(SUBNETS, *DIGITS_JOB, "--ensemble", "--workers", "2", "--epochs", "10", "--width", "32",
                               "--classes", "10")
        self.assertEqual((code, error), (0, ""))
        rows = re.findall(r"^\| ([12]) hidden layers? of 32 \| 0\.\d+, median 0\.\d+ \| 0\.\d+, median", out, re.M)
        self.assertEqual(rows, ["1", "2"])

    def test_what_the_job_refuses_ends_the_script_with_its_words(self):
        code, out, error = run(SUBNETS, *DIGITS_JOB, "--workers", "0")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("cluster.workers", error)


class Limited(Test):
    def test_without_root_it_says_so(self):
        # Tests may run where root is the only user there is.
        as_another = ("import os, runpy, sys; os.geteuid = lambda: 1000; sys.argv.pop(0); "
                      "runpy.run_path(sys.argv[0], run_name='__main__')")
        code, out, error = run("-c", as_another, LIMITED, *DIGITS_JOB)
        self.assertEqual((code, out), (2, ""))
        self.assertIn("want root", error)

    def test_a_rate_that_tc_does_not_know_is_refused(self):
        code, out, error = run(LIMITED, *DIGITS_JOB, "--rate", "fast")
        self.assertEqual((code, out), (2, ""))
        self.assertIn('got "fast", want a number with kbit, mbit or gbit', error)

    def start(self, *arguments):
        script = Process(self, "limited", [sys.executable, LIMITED, *DIGITS_JOB, "--rate", "20mbit", *arguments])
        await_true("links are measured", lambda: "down" in script.output() or not script.alive, explain=script.output)
        if "cannot be made here" in script.output() or "want root" in script.output():
            self.skipTest(script.output().strip())
        return script

    def test_links_hold_their_limit_and_the_job_trains_behind_them(self):
        out = self.start("--workers", "3", "--methods", "ist", "--to", "0.9").expect_exit(0, within=100)
        for name in ("up", "down"):
            fastest = float(re.search(r"plain sockets: %s [\d.]+ to ([\d.]+) Mbit/s" % name, out)[1])
            # What the script allows a bucket's burst and queue.
            self.assertLessEqual(fastest, 21.8)
        self.assertRegex(out, r"\| ist \| [\d.]+ s, \d+ MB \|")

    def test_plans_are_compared_with_jobs_behind_the_links(self):
        self.start("--workers", "1", "--methods", "ist", "--to", "0.1").expect_exit(0, within=100)  # or it is left out
        layers = ["--job", os.path.join(JOBS, "digits_layers.yaml")]
        for method, job in (("slim_dp", []), ("layer_separation", layers)):
            with self.case(method):
                code, out, error = run(PLANNED, "--rate", "200mbit", "--workers", "2", "--servers", "2", "--methods",
                                       method, *job, "--tessera", TESSERA)
                self.assertEqual(code, 0, error)
                row = re.search(r"\| %s \| 2 \| 2 \| ([\d.]+) ms \| (-?[\d.]+) ms \| (-?[\d.]+) \|" % method, out)
                self.assertTrue(row, out)
                planned, measured, ratio = map(float, row.groups())
                self.assertAlmostEqual(planned / measured, ratio, delta=0.02 * abs(ratio) + 0.02)

    def test_nothing_is_left_when_it_is_ended_or_killed(self):
        for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.case(how.name):
                script = self.start("--workers", "2", "--methods", "data_parallel", *NEVER)
                await_true("two servers and two workers are there", lambda: len(children_of(script.pid)) == 4,
                           explain=script.output)
                children = list(children_of(script.pid))
                script.signal(how)
                self.assertNotEqual(script.exit_code(SOON), 0)
                await_true("they are gone", lambda: not any(exists(child) for child in children))


class Sets(unittest.TestCase):
    def test_a_set_that_is_absent_says_how_it_is_come_by(self):
        with self.assertRaisesRegex(SystemExit, "has no fashion_mnist; deploy/fetch_data.sh fashion_mnist gets it"):
            runs.set_folder(os.environ["TEST_TMPDIR"], "fashion")
        with self.assertRaisesRegex(SystemExit, "has no speech or arabic_speech_commands; it has no public address.*"
                                    "with --from DIR takes it from DIR/arabic_speech_commands"):
            runs.set_folder(os.environ["TEST_TMPDIR"], "speech")

    def test_a_peer_that_cannot_run_is_told_before_the_first_job(self):
        source = os.path.join(os.path.dirname(SUBNETS), "compare.py")
        text = ("import runpy, subprocess, sys\n"
                "run = subprocess.run\n"
                "said = [sys.executable, '-c', 'import sys; sys.exit(\"no torch here\")']\n"
                "subprocess.run = lambda command, **more: run(said if 'import torch' in command else command, **more)\n"
                "sys.argv.pop(0)\n"
                "sys.path.insert(0, %r)\n"
                "runpy.run_path(sys.argv[0], run_name='__main__')" % os.path.dirname(SUBNETS))
        code, out, error = run("-c", text, source, DIGITS, "--binary", "/none")
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(error, r"^compare.py: \S+ cannot import torch \(no torch here\); install python3-torch.*\n$")

    def test_a_peer_whose_products_are_slow_is_none(self):
        text = ("import os, runpy, sys\n"
                "sys.argv.pop(0)\n"
                "sys.path.insert(0, %r)\n"
                "import peer\n"
                "peer.measured = lambda script, without: {'pytorch': float(os.environ['THEIRS']), 'onednn': 116.0}\n"
                "runpy.run_path(sys.argv[0], run_name='__main__')" % os.path.dirname(SUBNETS))
        subnets = [DIGITS, "--methods", "pytorch_ist", "--workers", "2", "--tessera", "/none"]
        for script, arguments in (("compare.py", [DIGITS, "--binary", "/none"]), ("subnets.py", subnets)):
            with self.subTest(script):
                def told(gflops):
                    with unittest.mock.patch.dict(os.environ, THEIRS=gflops):
                        return run("-c", text, os.path.join(os.path.dirname(SUBNETS), script), *arguments)
                code, out, error = told("2")
                self.assertEqual((code, out), (1, ""))
                self.assertRegex(error, r"^%s: PyTorch's product 2.0 GFLOP/s, oneDNN's 116.0, want half of that "
                                        r"or more: .*install python3-torch and libopenblas0-pthread, or use --.*\n$"
                                 % script)
                self.assertEqual(told("57.9")[0], 1)
                self.assertEqual(told("58.1")[1], "PyTorch's product 58.1 GFLOP/s, oneDNN's 116.0\n")

    def test_only_scripts_that_choose_their_servers_take_a_number_of_them(self):
        coded = importlib.import_module("coded")
        self.assertFalse(hasattr(coded.parser_of("", coded.ROWS).parse_args(["folder"]), "servers"))


class Peer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.torch = importlib.import_module("torch")
        except ImportError:
            raise unittest.SkipTest("python3-torch is not installed")
        cls.peer = importlib.import_module("pytorch_ist_peer")

    def test_the_product_of_each_is_timed(self):
        measured = importlib.import_module("peer").measured("this test", "-")
        self.assertEqual(set(measured), {"pytorch", "onednn"})
        self.assertTrue(all(gflops > 0 for gflops in measured.values()), measured)

    def test_parts_are_disjoint_and_cover_a_layer(self):
        parts = self.peer.cut(12, 3, random.Random(1))
        self.assertEqual([len(part) for part in parts], [4, 4, 4])
        self.assertEqual(sorted(int(i) for part in parts for i in part), list(range(12)))

    def test_a_part_comes_back_where_it_was_and_touches_nothing_else(self):
        rows, columns = self.torch.tensor([3, 0]), self.torch.tensor([1, 4])
        for at in ((rows, None), (None, columns), (rows, columns)):
            value = self.torch.arange(20.0).reshape(4, 5)
            part = self.peer.part_of(value, *at) + 100
            expected = value.clone()
            for i in range(4):
                for j in range(5):
                    if (at[0] is None or i in (3, 0)) and (at[1] is None or j in (1, 4)):
                        expected[i, j] += 100
            self.peer.write_part(value, part, *at)
            self.assertTrue(self.torch.equal(value, expected), at)

    def test_the_published_round_sends_its_parts_back_one_step_early_unless_asked(self):
        for keep, lost in ((False, 1), (True, 0)):
            said = []

            class Exchange:
                def dispatch(self):
                    said.append(("dispatch", len(steps)))

                def collect(self):
                    said.append(("collect", len(steps)))

            steps = []
            model = self.torch.nn.Linear(3, 2)
            optimizer = self.torch.optim.SGD(model.parameters(), lr=0.0)
            model.register_forward_hook(lambda *_: steps.append(1))
            x = self.torch.zeros(28 * 2 * self.peer.BATCH, 3)
            y = self.torch.zeros(len(x), dtype=self.torch.int64)
            options = argparse.Namespace(workers=2, keep_last_step=keep)
            self.peer.train_epoch(options, model, optimizer, Exchange(), x, y, self.torch.Generator())
            self.assertEqual(said, [("dispatch", 0), ("collect", 20 - lost), ("dispatch", 20), ("collect", 28)])


if __name__ == "__main__":
    unittest.main()
