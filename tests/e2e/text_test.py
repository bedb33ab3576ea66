"""Models of tokens: a small transformer by every method that takes it, and what must not change its result."""
import json
import math
import os
import random
import sys
import unittest

from checkpoint_folders import CheckpointTest, keeping, restoring, sameness, save_on_the_way, step_folder
from cluster import run_to_end, tessera, write_job

sys.path.insert(0, os.path.join("tests", "common", "checkpoint"))
from safetensors_reader import load  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

WORDS = "the cat sat on a mat and the dog ran to the old red barn where it met another cat".split()


def text(test, name, seed, words):
    dice = random.Random(seed)
    path = test.path(name)
    with open(path, "w") as file:
        file.write(" ".join(WORDS + [dice.choice(WORDS) for _ in range(words)]) + "\n")
    return path


def gpt(test, workers=1, servers=1, batch=12, steps=60, method=None, dropout=0.0, tied=True, **train):
    """A transformer of two blocks on a text of a few words, whose letters are easy to foretell."""
    vocabulary = len(set(" ".join(WORDS))) + 1
    block = [{"residual": {"layers": ["layer_norm", {"attention": {"heads": 4, "dropout": dropout}}]}},
             {"residual": {"layers": ["layer_norm", {"linear": {"units": 48}}, "gelu", {"linear": {"units": 24}}]}}]
    last = {"units": "vocabulary", "tied": True, "bias": False} if tied else {"units": vocabulary}
    return {"name": "gpt", "seed": 3,
            "data": {"format": "text", "train": {"features": text(test, "train.txt", 1, 900)},
                     "test": {"features": text(test, "test.txt", 2, 100)}},
            "model": {"input": {"tokens": {"vocabulary": vocabulary, "context": 16}},
                      "layers": [{"embedding": {"units": 24, "stddev": 0.1}}, {"repeat": {"times": 2, "layers": block}},
                                 "layer_norm", {"linear": last}]},
            "train": dict({"batch_size": batch, "steps": steps, "evaluate_every": 0, "clip_norm": 1.0,
                           "optimizer": {"adamw": {"learning_rate": 0.01}}}, **train),
            "method": method or {"data_parallel": {}},
            "cluster": {"servers": servers, "workers": workers, "lease_timeout": "4s"}}


class Methods(CheckpointTest):
    METHODS = [{"data_parallel": {}}, {"local_sgd": {"local_steps": 5}}, {"diloco": {"local_steps": 5}},
               {"diloco": {"local_steps": 5, "asynchronous": True}}, {"diloco": {"local_steps": 5, "overlap": True}},
               {"diloco": {"local_steps": 5, "quorum": {"pushes": 1, "grace": "0.1s"}}},
               {"async_sgd": {}}, {"softsync": {"pushes": 2}}, {"ssp": {}}, {"quant_dp": {}}, {"slim_dp": {}},
               {"decentralized": {}}, {"ist": {"local_steps": 5, "cut": "all"}},
               {"ist": {"local_steps": 5, "cut": "all", "order": "rolling"}}, {"ensemble": {"cut": "all"}}]

    def test_every_method_learns(self):
        for method in self.METHODS:
            with self.case(json.dumps(method)):
                report = run_to_end(self, gpt(self, workers=2, servers=2, method=method))
                start = math.log(len(set(" ".join(WORDS))) + 1)
                self.assertLess(report["final"]["test_loss"], 0.9 * start)
                self.assertAlmostEqual(report["final"]["perplexity"], math.exp(report["final"]["test_loss"]), places=6)

    def test_subnets_begin_with_a_whole_model_and_end_as_one(self):
        """model.init and export: the score stays from the whole model to subnets and back, however many sites."""
        folder = self.path("trained")
        local, subnets = {"local_sgd": {"local_steps": 5}}, {"ist": {"local_steps": 5, "cut": "all"}}
        score = run_to_end(self, keeping(gpt(self, workers=2, method=local), folder, 1000))["final"]["test_loss"]
        trained = folder
        for workers, method in ((4, subnets), (3, subnets), (2, local)):
            with self.case("%d workers" % workers):
                exported = self.path("model_%d.safetensors" % workers)
                self.assertEqual(tessera("export", folder, exported, "--quiet")[0], 0)
                # Steps that move nothing: the evaluation at the end is of the file's values.
                job = gpt(self, workers=workers, steps=5, method=method, optimizer={"sgd": {"learning_rate": 1e-30}})
                job["model"]["init"] = exported
                folder = self.path("checkpoints_%d" % workers)
                report = run_to_end(self, keeping(job, folder, 1000))
                self.assertAlmostEqual(report["final"]["test_loss"], score, places=5)
        job = restoring(gpt(self, workers=2, steps=70, method=subnets), trained)
        code, out, error = tessera("run", write_job(self, job), "--quiet")
        self.assertEqual(code, 2, out + error)
        self.contains(error, "out_proj.weight are the whole model's",
                      "name that file in model.init")

    def test_codecs_and_precision_learn(self):
        for keys in ({"codec": {"push": "bf16", "pull": "bf16"}}, {"codec": {"push": {"threshold": {"tau": 0.001}}}}):
            with self.case(json.dumps(keys)):
                report = run_to_end(self, dict(gpt(self, workers=2, method={"local_sgd": {"local_steps": 5}}), **keys))
                self.assertLess(report["final"]["test_loss"], 2.8)

    def test_halves_are_refused_with_a_reason(self):
        job = gpt(self, workers=2, method={"layer_separation": {"front_workers": 1}})
        code, out, error = tessera("check", write_job(self, job))
        self.assertNotEqual(code, 0)
        self.assertIn("model of tokens", out + error)


class Equalities(CheckpointTest):
    def test_workers_with_a_part_of_the_batch_follow_one_with_all_of_it(self):
        reference = run_to_end(self, gpt(self, batch=12))
        again = run_to_end(self, gpt(self, batch=12))
        self.assertEqual(reference["parameters_hash"], again["parameters_hash"])
        for workers, method in ((2, None), (3, None), (3, {"local_sgd": {"local_steps": 1}})):
            with self.case("%d %s" % (workers, method)):
                # Clipping and AdamW see the mean gradient on the servers, and each worker's own in local_sgd.
                job = gpt(self, workers=workers, servers=2, batch=12 // workers, method=method,
                          clip_norm=0, optimizer={"sgd": {"learning_rate": 0.3}})
                whole = gpt(self, batch=12, clip_norm=0, optimizer={"sgd": {"learning_rate": 0.3}})
                got, want = run_to_end(self, job), run_to_end(self, whole)
                self.assertAlmostEqual(got["final"]["test_loss"], want["final"]["test_loss"], delta=1e-3)

    def test_pieces_of_a_minibatch_follow_the_whole(self):
        whole = run_to_end(self, gpt(self))
        pieces = run_to_end(self, gpt(self, micro_batch=5))
        self.assertAlmostEqual(pieces["final"]["test_loss"], whole["final"]["test_loss"], delta=2e-2)

    def test_a_resumed_job_ends_with_the_same_bits(self):
        for name, job in (("data_parallel", gpt(self, workers=2, dropout=0.1)),
                          ("ist", gpt(self, workers=2, method={"ist": {"local_steps": 5, "cut": "all"}}))):
            with self.case(name):
                folder = self.path("checkpoints-" + name)
                whole, step = save_on_the_way(self, job, folder, 20)
                again = run_to_end(self, restoring(job, step_folder(folder, step)))
                self.assertEqual(sameness(again), sameness(whole))

    def test_a_model_scored_in_blocks_has_the_same_loss(self):
        job = gpt(self, workers=2, method={"ist": {"local_steps": 5, "cut": "all"}})
        whole = run_to_end(self, job)
        job["cluster"]["evaluation_memory"] = 0
        self.assertEqual(run_to_end(self, job)["final"]["test_loss"], whole["final"]["test_loss"])


class Samples(CheckpointTest):
    def sample(self, folder, *flags):
        return tessera("sample", folder, *flags)

    def test_a_checkpoint_writes_words_of_its_text(self):
        folder = self.path("checkpoints")
        run_to_end(self, keeping(gpt(self, steps=400), folder, 0))
        code, first, error = self.sample(folder, "--prompt", "the cat", "--tokens", "60", "--seed", "1")
        self.assertEqual((code, error), (0, ""))
        self.assertTrue(first.startswith("the cat"), first)
        self.assertEqual(len(first), len("the cat") + 60 + 1)
        # Longer than the context by far, and words that there are.
        known = sum(word in WORDS for word in first.split())
        self.assertGreater(known, len(first.split()) / 2, first)
        self.assertEqual(self.sample(folder, "--prompt", "the cat", "--tokens", "60", "--seed", "1")[1], first)
        self.assertNotEqual(self.sample(folder, "--prompt", "the cat", "--tokens", "60", "--seed", "2")[1], first)
        cold = [self.sample(folder, "--prompt", "the ", "--tokens", "20", "--temperature", "0", "--seed", seed)[1]
                for seed in ("1", "2")]
        self.assertEqual(cold[0], cold[1])

    def test_what_cannot_be_written_is_refused_by_name(self):
        folder = self.path("checkpoints")
        run_to_end(self, keeping(gpt(self, steps=5), folder, 0))
        for flags, words in ((("--prompt", "the Cat"), "C"), (("--tokens", "0"), "tokens"),
                             (("--temperature", "-1"), "temperature")):
            with self.subTest(words):
                code, out, error = self.sample(folder, *flags)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(words, error)
        self.assertEqual(self.sample(self.path("nowhere"))[0], 2)


class Exports(CheckpointTest):
    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_an_export_loads_into_the_equal_module_and_scores_the_same(self):
        sys.path.insert(0, os.path.join("deploy", "examples"))
        from pytorch_model import module_of
        for tied in (True, False):
            with self.case("tied: %s" % tied):
                job = gpt(self, tied=tied)
                folder, model = self.path("checkpoints-%s" % tied), self.path("model.safetensors")
                report = run_to_end(self, keeping(job, folder, 0))
                self.assertEqual(tessera("export", folder, model, "--quiet")[0], 0)
                state, _ = load(model)
                net = module_of(job["model"])
                net.load_state_dict({name: torch.tensor(value) for name, value in state.items()}, strict=True)
                with open(job["data"]["train"]["features"]) as train, open(job["data"]["test"]["features"]) as test:
                    letters, score = sorted(set(train.read())), test.read()
                tokens = torch.tensor([letters.index(letter) for letter in score])
                context = job["model"]["input"]["tokens"]["context"]
                rows = (len(tokens) - 1) // context
                x = tokens[:rows * context].reshape(rows, context)
                y = tokens[1:rows * context + 1]
                net.eval()
                with torch.no_grad():
                    loss = torch.nn.functional.cross_entropy(net(x).flatten(0, 1), y)
                self.assertAlmostEqual(float(loss), report["final"]["test_loss"], delta=1e-4)
                code, out, error = tessera("eval", folder, write_job(self, job), "--json")
                self.assertEqual(code, 0, error)
                self.assertAlmostEqual(json.loads(out)["perplexity"], report["final"]["perplexity"], places=6)
                self.assertEqual(json.loads(out)["test_rows"], rows)


if __name__ == "__main__":
    unittest.main()
