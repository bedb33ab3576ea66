"""The scripts that lay our figures beside the papers': that they run, and that docs/papers.md has what they kept."""
import datetime
import importlib
import json
import os
import subprocess
import sys
import unittest

from cluster import ROOT, TESSERA, Test

FOLDER = os.path.join(ROOT, "bench/papers")
sys.path.insert(0, FOLDER)
paper = importlib.import_module("paper")
SCRIPTS = {name: importlib.import_module(name)
           for name in ("ist", "slim_dp", "stanza", "stanza_cifar", "stanza_mlp", "survey")}
ist, slim_dp, stanza, stanza_cifar, stanza_mlp, survey = SCRIPTS.values()
DIGITS = os.path.join(ROOT, "deploy/data")


def kept(name):
    with open(os.path.join(paper.RESULTS, name + ".json")) as file:
        return json.load(file)


class Formulas(unittest.TestCase):
    def test_an_all_reduce_takes_two_rounds_more_where_the_nodes_are_no_power_of_two(self):
        self.assertEqual([stanza.rounds(n) for n in (1, 2, 3, 4, 8, 10, 16)], [0, 1, 3, 2, 3, 5, 4])

    def test_alexnets_layers_are_counted(self):
        network = stanza.Network("alexnet")
        self.assertEqual(network.size(), 61100840)
        self.assertEqual(network.cut, 256 * 6 * 6)
        self.assertEqual(network.forward["linear"], 9216 * 4096 + 4096 * 4096 + 4096 * 1000)

    def test_the_implied_step_gives_the_papers_speedup(self):
        for name, speedup in stanza.PAPER_SPEEDUPS.items():
            network = stanza.Network(name)
            step = stanza.implied_step(name, network)
            self.assertGreater(step, 0)
            self.assertAlmostEqual(stanza.paper_server(network, 10, 1, 10, step) /
                                   stanza.paper_stanza(network, 10, 1, 10, step), speedup)

    def test_subnets_move_each_outer_weight_once_and_a_part_of_the_inner_ones(self):
        got = ist.traffic((4, 8, 6, 2), 2)
        self.assertEqual(got["data_parallel"], 2 * (32 + 48 + 12))
        self.assertAlmostEqual(got["ist"], (32 + 12 + 48 / 2) / ist.LOCAL_STEPS)

    def test_the_implied_step_of_a_table_gives_its_seconds(self):
        for name, by_method in ist.TABLE1.items():
            for column in range(len(ist.NODES)):
                found = ist.implied(name, column)
                whole = found["steps"] * (found["step"] + found["exchange"])
                local = found["steps"] * (found["step"] + found["exchange"] / ist.LOCAL_STEPS)
                self.assertAlmostEqual(whole, by_method["data_parallel"][column])
                self.assertAlmostEqual(local, by_method["local_sgd"][column])

    def test_an_accuracy_is_reached_between_two_evaluations(self):
        history = [{"seconds": 2.0, "test_accuracy": 0.5}, {"seconds": 4.0, "test_accuracy": 0.7}]
        self.assertAlmostEqual(paper.crossing(history, 0.6), 3.0)
        self.assertAlmostEqual(paper.crossing(history, 0.25), 1.0)
        self.assertIsNone(paper.crossing(history, 0.71))

    def test_a_table_is_drawn_in_the_place_of_the_one_with_its_titles(self):
        page = "words\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n| 3 | 4 |\n\nmore\n"
        drawn = paper.table(["a", "b"], [["5", "6"]])
        self.assertEqual(paper.redraw_page(page, [drawn]), "words\n" + drawn + "\n\nmore\n")
        with self.assertRaises(SystemExit):
            paper.redraw_page("words\n", [drawn])


class Page(Test):
    def test_it_has_the_tables_and_pictures_of_what_was_kept(self):
        with open(paper.PAGE) as file:
            page = file.read()
        programs = paper.Programs(TESSERA, self.path("reports"))
        for name, script in SCRIPTS.items():
            results = kept(name)
            for key in ("date", "machine", "command"):
                self.assertTrue(results[key], key)
            date = datetime.date.fromisoformat(results["date"]).strftime("%-d %B %Y")
            # Not assertIn, which would print the page.
            how = "Measured" if name == "stanza_mlp" else "Simulated"
            self.assertTrue("%s on %s (%s" % (how, date, results["machine"]) in page, date)
            tables, pictures = script.draw(results)
            self.assertGreaterEqual(len(tables), {"stanza_cifar": 1, "stanza_mlp": 1, "slim_dp": 2}.get(name, 3))
            for table in tables:
                with self.case(table.split("\n", 1)[0]):
                    self.assertTrue(table + "\n\n" in page, "bench/papers/%s.py --redraw draws:\n%s" % (name, table))
            for picture in pictures:
                with self.case(picture.name):
                    self.assertTrue("(papers/%s.svg)" % picture.name in page)
                    with open(os.path.join(paper.PICTURES, picture.name + ".svg")) as file:
                        self.assertEqual(picture.svg(programs), file.read())


class Scripts(Test):
    def quick(self, name, *flags):
        path = self.path(name + ".json")
        done = subprocess.run([sys.executable, os.path.join(FOLDER, name + ".py"), "--quick", "--tessera", TESSERA,
                               "--out", path, *flags], capture_output=True, text=True, timeout=250)
        if "cannot be made here" in done.stderr or "want root" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as file:
            return json.load(file), done.stdout

    def test_stanza_counts_parameters_and_simulates_a_cell(self):
        results, out = self.quick("stanza")
        self.assertEqual(results["table2"], kept("stanza")["table2"])
        self.assertIn("| AlexNet | 2,469,696 | 58,631,144 |", out)
        cell, = results["figure6"]
        # Two workers' activations and gradients, in batches of two rows, and their convolutions' parameters.
        formula = 4 * (2 * 2 * 9216 * 2 + 2 * 2 * 2469696)
        self.assertAlmostEqual(cell["beside"]["bytes"] / formula, 1, delta=0.001)
        self.assertGreater(cell["server"]["seconds"], cell["beside"]["seconds"])

    def test_layers_that_are_separated_learn_the_same(self):
        results, _ = self.quick("stanza_cifar", "--data", DIGITS)
        self.assertEqual([row["way"] for row in results["rows"]], list(stanza_cifar.WAYS))
        self.assertEqual(len({tuple(row["accuracies"]) for row in results["rows"]}), 1)
        links = [row["link_bytes"] for row in results["rows"]]
        self.assertEqual(links, sorted(links, reverse=True))

    def test_stanzas_mlp_moves_what_its_formula_says_on_real_processes(self):
        results, _ = self.quick("stanza_mlp", "--rate", "1gbit", "--nodes", "3")
        self.assertEqual([row["way"] for row in results["rows"]], list(stanza_mlp.WAYS))
        for row in results["rows"]:
            self.assertEqual(row["link_bytes"], row["formula_bytes"], row["way"])
        # Two workers with data: activations and labels, and half of the layers in front, which the other one has.
        self.assertEqual(results["rows"][2]["formula_bytes"],
                         4 * 2 * 64 * (2 * 1024 + 1) + 8 * (785 * 1024 + 1025 * 1024))

    def test_a_kept_cell_is_found_again(self):
        want = next(row for row in kept("stanza")["figure6"] if row["network"] == "alexnet" and row["n_c"] == 2)
        simulated = stanza.Simulated(paper.Programs(TESSERA, self.path("reports")))
        got = simulated.stanza("alexnet", 2, 1, want["gigabits"], want["step"], stanza.PLACES["beside"])
        self.assertEqual(got, want["beside"])

    def test_ist_moves_what_its_formula_says(self):
        results, out = self.quick("ist")
        self.assertIn("| 3 layers, 2 | 808 | 40 | 13 | 13 | 60 | 3.0 |", out)
        self.assertEqual(set(results["steps"]["2 layers"]), set(ist.METHODS))

    def test_slim_dp_moves_the_share_that_its_row_names(self):
        results, _ = self.quick("slim_dp", "--data", DIGITS)
        cells = {cell["row"]: cell for cell in results["cells"]}
        self.assertEqual(list(cells), list(slim_dp.ROWS))
        plain = cells[slim_dp.PLAIN]
        self.assertEqual(plain["difference"], 0)
        for row, alpha in (("0.2, 0.1, in 2,000", 0.2), ("0.3, 0.15, in 50", 0.3), ("no core: 0.2, 0, in 2,000", 0.2)):
            with self.case(row):
                # No key of an explorer crosses the link, and a core's are a bit of each entry, once.
                self.assertAlmostEqual(cells[row]["push"] / plain["push"], alpha, delta=0.03)
                self.assertLess(cells[row]["exchanging"], plain["exchanging"])
        # Without exploration most of the model never moves.
        self.assertLess(cells["no exploration: 0.2, 0.2, in 2,000"]["difference"], -0.2)

    def test_the_survey_averages_waits_and_codes(self):
        results, _ = self.quick("survey", "--data", DIGITS)
        tables = {name: survey.by_row(results, name) for name in ("averaging", "staleness", "threshold")}
        plain = tables["averaging"]["plain"]
        # The 5 steps of an epoch end two periods of 4.
        self.assertAlmostEqual(plain[4]["push"] / plain[1]["push"], 2 / 5, delta=0.01)
        both = tables["averaging"]["momentum, averaged too"][1]
        self.assertAlmostEqual(both["push"] / plain[1]["push"], 2, delta=0.01)
        self.assertAlmostEqual(tables["staleness"]["constant"][4]["staleness"], 3, delta=0.5)
        pushed = [tables["threshold"][row][0]["push"] for row in ("f32", "density 0.05", "density 0.002")]
        self.assertGreater(pushed[0], 5 * pushed[1])
        self.assertGreater(pushed[1], 5 * pushed[2])


if __name__ == "__main__":
    unittest.main()
