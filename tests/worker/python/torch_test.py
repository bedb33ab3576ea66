"""tessera.torch.attach: a module's tensors are the job's, its optimizer steps, and checkpoints have the rest."""
import os
import unittest

from fake_job import FakeJobTest, initial

import numpy as np
import tessera

try:
    import torch
except ImportError:
    torch = None

LINEAR = ("tensor weight 2 3", "tensor bias 2")


def values_of(tensor):
    return tensor.detach().float().cpu().numpy()


@unittest.skipUnless(torch, "python3-torch is not installed")
class TorchTest(FakeJobTest):
    def linear(self, *lines, optimizer=None, model=None, **arguments):
        """A linear layer in a job of these lines, and what trains it."""
        model = model or torch.nn.Linear(3, 2)
        job = self.join(*LINEAR, *lines)
        return model, tessera.torch.attach(job, model, optimizer and optimizer(model.parameters()), **arguments)

    def train(self, model, trainer):
        loss = model(torch.ones(4, 3, dtype=next(model.parameters()).dtype)).sum()
        loss.backward()
        return trainer.step(examples=4, loss=loss)

    def test_values_are_pulled_into_the_models_own_memory(self):
        model = torch.nn.Linear(3, 2)
        addresses = [p.data_ptr() for p in model.parameters()]
        self.linear("gradient 1", model=model)
        np.testing.assert_array_equal(values_of(model.weight), initial((2, 3), 0))
        np.testing.assert_array_equal(values_of(model.bias), initial((2,), 1))
        self.assertEqual([p.data_ptr() for p in model.parameters()], addresses)

    def test_gradients_are_pushed_and_the_servers_step(self):
        model, trainer = self.linear("gradient 0.5", "steps 3")
        for step in range(1, 3):
            model.zero_grad(set_to_none=step == 1)
            self.assertTrue(self.train(model, trainer))
            np.testing.assert_array_equal(values_of(model.weight), initial((2, 3), 0) - 2 * step)
        # A parameter without a gradient stays.
        model.zero_grad(set_to_none=True)
        model.weight.grad = torch.ones(2, 3)
        trainer.step(4, 0.5)
        np.testing.assert_array_equal(values_of(model.weight), initial((2, 3), 0) - 4.5)
        np.testing.assert_array_equal(values_of(model.bias), initial((2,), 1) - 4)

    def test_an_optimizer_steps_with_the_jobs_schedule(self):
        model, trainer = self.linear("steps 4", "local_steps 2", "rate 0.5",
                                     optimizer=lambda p: torch.optim.SGD(p, lr=0.25))
        for step in range(1, 4):
            trainer.optimizer.zero_grad()
            self.train(model, trainer)
            np.testing.assert_allclose(values_of(model.weight), initial((2, 3), 0) - 0.5 * step)
        self.assertEqual(trainer.optimizer.param_groups[0]["lr"], 0.25)
        self.assertEqual(self.calls()[:4], ["pull"] + self.calls()[1:3] + ["exchange"])

    def test_who_steps_is_said_where_it_is_wrong(self):
        with self.assertRaisesRegex(ValueError, "the servers' train.optimizer steps"):
            self.linear("gradient 1", optimizer=lambda p: torch.optim.SGD(p, lr=1))
        self.fake.fake_reset()
        with self.assertRaisesRegex(ValueError, r"call attach\(job, model, optimizer\)"):
            self.linear()

    def test_all_that_does_not_fit_is_said_at_once(self):
        job = self.join("tensor weight 3 2", "tensor bias 2", "tensor extra 1", "tensor buffer 1", "gradient 1")
        model = torch.nn.Linear(3, 2)
        model.register_buffer("buffer", torch.zeros(1, dtype=torch.long))
        model.other = torch.nn.Parameter(torch.zeros(1))
        with self.assertRaises(ValueError) as caught:
            tessera.torch.attach(job, model, local=["none.*"])
        for part in ('"weight" has shape [2, 3] in the model, want the job\'s [3, 2]',
                     'the model has no tensor "extra"', '"buffer" is of torch.int64', 'the job has no tensor "other"',
                     'no tensor fits "none.*"'):
            self.assertIn(part, str(caught.exception))
        self.assertEqual(self.calls(), [])

    def test_models_of_jobs_with_layers_are_matched_by_order(self):
        lines = ("tensor layers.0.weight 2 3", "tensor layers.0.bias 2", "tensor layers.2.weight 1 2", "gradient 1")
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1, bias=False))
        tessera.torch.attach(self.join(*lines), model)
        np.testing.assert_array_equal(values_of(model[2].weight), initial((1, 2), 2))
        self.fake.fake_reset()
        with self.assertRaisesRegex(ValueError, "it has 4 parameters, the job's layers have 3"):
            tessera.torch.attach(self.join(*lines), torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)))
        self.fake.fake_reset()
        model[2] = torch.nn.Linear(1, 2, bias=False)
        with self.assertRaisesRegex(ValueError, r'"2.weight" has shape \[2, 1\], want \[1, 2\] of "layers.2.weight"'):
            tessera.torch.attach(self.join(*lines), model)

    def test_local_names_stay_here(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
        kept = values_of(model[1].weight).copy()
        job = self.join("tensor 0.weight 2 3", "tensor 0.bias 2", "tensor 1.bias 2", "steps 2")
        trainer = tessera.torch.attach(job, model, torch.optim.SGD(model.parameters(), lr=1), local=["1.*"])
        np.testing.assert_array_equal(values_of(model[1].weight), kept)
        self.train(model, trainer)
        self.assertFalse(np.array_equal(values_of(model[1].weight), kept))
        self.train(model, trainer)
        self.assertTrue(trainer.evaluates)

    def test_tied_weights_are_one_tensor_here(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
        model[1].weight = model[0].weight
        tessera.torch.attach(self.join("tensor 0.weight 2 2", "gradient 1"), model)
        np.testing.assert_array_equal(values_of(model[1].weight), initial((2, 2), 0))

    def test_running_statistics_are_averaged_with_changes_and_local_with_gradients(self):
        names = ("tensor weight 2", "tensor bias 2", "tensor running_mean 2", "tensor running_var 2")
        data = torch.tensor([[0., 1], [2, 5]])
        for lines, shared in ((("local_steps 2",), True), (("gradient 0",), False)):
            with self.subTest(lines):
                self.fake.fake_reset()
                job, model = self.join(*names, *lines), torch.nn.BatchNorm1d(2)
                trainer = tessera.torch.attach(job, model,
                                               torch.optim.SGD(model.parameters(), lr=0) if shared else None)
                np.testing.assert_array_equal(values_of(model.running_mean), initial((2,), 2))
                for _ in range(2):
                    loss = model(data).sum()
                    loss.backward()
                    trainer.step(2, loss)
                want = (initial((2,), 2) * 0.9 + 0.1 * np.array([1, 3])) * 0.9 + 0.1 * np.array([1, 3])
                np.testing.assert_allclose(values_of(model.running_mean), want, rtol=1e-6)
                self.assertEqual(model.num_batches_tracked, 2)
                # A worker that comes later finds what the servers have.
                late = torch.nn.BatchNorm1d(2)
                tessera.torch.attach(job.rejoin(), late, torch.optim.SGD(late.parameters(), lr=0) if shared else None)
                np.testing.assert_allclose(values_of(late.running_mean), want if shared else initial((2,), 2),
                                           rtol=1e-6)
                job.close()

    def test_sparse_gradients_are_pushed(self):
        model = torch.nn.Embedding(3, 2, sparse=True)
        trainer = tessera.torch.attach(self.join("tensor weight 3 2", "gradient 1", "steps 3"), model)
        for step in range(1, 3):
            model.zero_grad(set_to_none=True)
            loss = model(torch.tensor([1, 1])).sum()
            loss.backward()
            trainer.step(2, loss)
            want = initial((3, 2), 0) - step * np.array([[0], [2], [0]])
            np.testing.assert_array_equal(values_of(model.weight), want)

    def test_an_initial_file_has_all_floating_tensors_that_are_not_local(self):
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
        path = os.path.join(self.folder, "init.safetensors")
        tessera.torch.save_initial(model, path, local=["1.bias"])
        self.assertEqual(list(tessera.load_tensors(path)),
                         ["0.weight", "0.bias", "0.running_mean", "0.running_var", "1.weight"])

    def test_other_kinds_of_tensors_go_through_a_copy(self):
        for kind, layout in ((torch.float64, None), (torch.bfloat16, None), (torch.float32, "turned")):
            with self.subTest(kind):
                self.fake.fake_reset()
                model = torch.nn.Linear(3, 2).to(kind)
                if layout:
                    model.weight = torch.nn.Parameter(torch.zeros(3, 2).t())
                model, trainer = self.linear("steps 3", "local_steps 1", model=model,
                                             optimizer=lambda p: torch.optim.SGD(p, lr=0.25))
                np.testing.assert_allclose(values_of(model.weight), initial((2, 3), 0), rtol=0.01)
                self.train(model, trainer)
                np.testing.assert_allclose(values_of(model.weight), initial((2, 3), 0) - 1, atol=0.01)

    def test_rounding_to_16_bits_is_not_pushed(self):
        model, trainer = self.linear("steps 9", model=torch.nn.Linear(3, 2).bfloat16(),
                                     optimizer=lambda p: torch.optim.SGD(p, lr=0))
        for _ in range(4):
            self.train(model, trainer)
        # Values such as 1 + 3 / 128 have more bits than the model has.
        fine, job = torch.nn.Linear(3, 2), trainer.job.rejoin()
        tessera.torch.attach(job, fine, torch.optim.SGD(fine.parameters(), lr=0))
        np.testing.assert_array_equal(values_of(fine.weight), initial((2, 3), 0))

    def test_tensors_that_move_are_found(self):
        model, trainer = self.linear("steps 4", optimizer=lambda p: torch.optim.SGD(p, lr=0.25))
        model.weight.data = model.weight.data.clone()
        model.bias = torch.nn.Parameter(model.bias.data.clone())
        trainer.optimizer.param_groups[0]["params"][1] = model.bias
        for step in range(1, 3):
            trainer.optimizer.zero_grad()
            self.train(model, trainer)
            np.testing.assert_array_equal(values_of(model.bias), initial((2,), 1) - step)

    def test_averaged_states_are_the_optimizers_own(self):
        for lines, optimizer, keys in (
                (("momentum",), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5), ("momentum_buffer",)),
                (("mean", "squares"), lambda p: torch.optim.AdamW(p, lr=0.1), ("exp_avg", "exp_avg_sq")),
                (("mean", "squares"), lambda p: torch.optim.Adam(p, lr=0.1), ("exp_avg", "exp_avg_sq")),
                (("squares",), lambda p: torch.optim.Adagrad(p, lr=0.1), ("sum",)),
                (("mean_squares", "momentum"), lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5),
                 ("square_avg", "momentum_buffer"))):
            with self.subTest(keys):
                self.fake.fake_reset()
                states = ["state %d %s" % (p, what) for p in range(2) for what in lines]
                model, trainer = self.linear(*states, "steps 3", optimizer=optimizer)
                # What the same optimizer does alone.
                alone = torch.nn.Linear(3, 2)
                alone.load_state_dict(model.state_dict())
                other = optimizer(alone.parameters())
                for _ in range(3):
                    for own, trained in ((other, alone), (trainer.optimizer, model)):
                        own.zero_grad()
                        loss = trained(torch.ones(4, 3)).sum()
                        loss.backward()
                    other.step()
                    trainer.step(4, loss)
                np.testing.assert_allclose(values_of(model.weight), values_of(alone.weight), rtol=1e-6)
                # Another one finds them on the servers.
                late = torch.nn.Linear(3, 2)
                late_optimizer = optimizer(late.parameters())
                tessera.torch.attach(trainer.job.rejoin(), late, late_optimizer)
                for key in keys:
                    np.testing.assert_allclose(values_of(late_optimizer.state[late.weight][key]),
                                               values_of(other.state[alone.weight][key]), rtol=1e-6)
                trainer.close()

    def test_a_state_that_the_optimizer_lacks_is_named(self):
        with self.assertRaisesRegex(ValueError, "averages \"momentum\" of the optimizer, which SGD does not have"):
            self.linear("state 0 momentum", optimizer=lambda p: torch.optim.SGD(p, lr=1))

    def test_a_job_that_goes_back_ends_as_one_that_does_not(self):
        ends = []
        for lines in ((), ("back_at 4",)):
            for states in ((), ("state 0 mean", "state 0 squares", "state 1 mean", "state 1 squares")):
                self.fake.fake_reset()
                torch.manual_seed(1)
                model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(2))
                kept, given = [0], []
                optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
                trainer = tessera.torch.attach(
                    self.join("tensor 0.weight 2 3", "tensor 0.bias 2", *states, *lines, "steps 8", "local_steps 2",
                              "save_every 1"),
                    model, optimizer, local=["2.*"], on_save=lambda: b"step %d" % kept[0], on_load=given.append)
                while trainer.running and not trainer.evaluates:
                    optimizer.zero_grad()
                    loss = (model(torch.randn(4, 3)) * torch.tensor([1., -2])).pow(3).sum()
                    loss.backward()
                    trainer.step(4, loss)
                    kept[0] = kept[0] + 1 if not trainer.rejoined else int(given[0].split()[1])
                self.assertEqual(given, [b"step 1"] if lines else [])
                ends.append([values_of(value) for value in model.state_dict().values()])
                trainer.close()
        for states in range(2):
            for one, other in zip(ends[states], ends[states + 2]):
                np.testing.assert_array_equal(one, other)

    def test_a_return_without_saved_state_begins_the_optimizer_anew(self):
        model, trainer = self.linear("steps 9", "lost_at 2", optimizer=lambda p: torch.optim.Adam(p, lr=0.1))
        self.train(model, trainer)
        self.assertEqual(len(trainer.optimizer.state), 2)
        with self.assertRaises(tessera.JobLost):
            self.train(model, trainer)
        trainer.rejoin()
        self.assertEqual(len(trainer.optimizer.state), 0)
        self.assertTrue(trainer.rejoined)
        self.train(model, trainer)

    def test_scores_may_be_tensors(self):
        model, trainer = self.linear("gradient 1", "steps 1")
        self.train(model, trainer)
        trainer.report(score=torch.tensor(0.5), loss=torch.tensor(2.), rows=torch.tensor(3))
        self.assertEqual(self.calls()[-1], "evaluate 0.5 2 3")


if __name__ == "__main__":
    unittest.main()
