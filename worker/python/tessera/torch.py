"""PyTorch models as workers: `attach` makes a Trainer of a module, and of its optimizer where it has one.

    job = tessera.join("job.yaml")
    trainer = tessera.torch.attach(job, model, optimizer)
    for x, y in loader:
        optimizer.zero_grad(); loss = criterion(model(x), y); loss.backward()
        if not trainer.step(examples=len(x), loss=loss): break
        if trainer.evaluates: trainer.report(**evaluate(model))
    trainer.close()

Works with PyTorch 1.13 and newer.
"""
import os
from typing import Any, Callable, Iterable

import torch

from tessera.job import Job
from tessera.tensor_file import save_tensors
from tessera.torch_memory import MemoryGroup, TensorMemory
from tessera.torch_names import LocalNames, match
from tessera.torch_optimizer import OptimizerStates
from tessera.torch_state import from_bytes, to_bytes
from tessera.trainer import Trainer

# Where what is named None lies.
_NOWHERE: dict[str | None, None] = {None: None}


def attach(job: Job, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None,
           local: Iterable[str] = (), on_save: Callable[[], bytes] | None = None,
           on_load: Callable[[bytes], None] | None = None) -> "TorchTrainer":
    """Takes the servers' values into the model, and returns what exchanges them from then on.

    Tensors are found by the names of model.state_dict(); in jobs with layers, of which no name is in the model, by
    order and shape. Running statistics that are among the job's tensors are averaged as the parameters are, but where
    gradients are pushed: there they begin with the job's values and are each worker's own.

    optimizer  where the method pushes what the model changed by: it steps within TorchTrainer.step, with its learning
               rate times the job's schedule. Where gradients are pushed (job.pushes_gradient) there is none
    local      names, or patterns such as "backbone.*", of what stays here and is never exchanged
    on_save    bytes that a checkpoint keeps beside the optimizer's state, local tensors and random numbers
    on_load    is given these bytes where the job goes on from a checkpoint

    Raises ValueError that says everything that does not fit at once: names, shapes, an optimizer that is missing, too
    many, or without a state that the job averages.
    """
    return TorchTrainer(job, model, optimizer, LocalNames(local), on_save, on_load)


def save_initial(model: torch.nn.Module, path: str | os.PathLike, local: Iterable[str] = ()) -> None:
    """Writes the file that `model.tensors` of a job names: the floating tensors of model.state_dict() but those that
    `local` names. Counters, as BatchNorm's num_batches_tracked, stay with each worker."""
    names = LocalNames(local)
    save_tensors({name: value for name, value in _tensors_of(model).items()
                  if value.is_floating_point() and name not in names}, path)


def _tensors_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The state_dict without what is no tensor (get_extra_state); parameters as they are."""
    return {name: value for name, value in model.state_dict(keep_vars=True).items() if isinstance(value, torch.Tensor)}


class TorchTrainer(Trainer):
    """Trainer of a module. Its parameters and their gradients are used where they lie: dense float32 tensors of the CPU
    in place, others by a copy, which is pinned memory for those of a GPU.

    One thread, the job's; `step` is called between two minibatches.
    """

    def __init__(self, job: Job, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None, local: LocalNames,
                 on_save: Callable[[], bytes] | None, on_load: Callable[[bytes], None] | None):
        if job.pushes_gradient and optimizer is not None:
            raise ValueError("attach: the job pushes gradients, and the servers' train.optimizer steps; call "
                             "attach(job, model) without an optimizer, and model.zero_grad() in place of its")
        if not job.pushes_gradient and optimizer is None:
            raise ValueError("attach: the job pushes what the model changed by, which an optimizer of yours changes; "
                             "call attach(job, model, optimizer)")
        # A compiled module is the same one under longer names.
        model = getattr(model, "_orig_mod", model)
        self.model, self.optimizer = model, optimizer
        state = _tensors_of(model)
        # Names of the model by the index of the job's parameter; None: it stays here.
        self._names = match(job.parameters, state, [name for name, _ in model.named_parameters()], local)
        self._trained = {name for name, value in state.items() if value.requires_grad}
        places = _places(model)
        # (the dict of a module, the key there) of each name; None: a module names its tensors in a way of its own.
        self._places = [places.get(name, (_NOWHERE, None) if name is None else None) for name in self._names]
        # Those of the last exchange, or of the one that is being made.
        self._found: list[torch.Tensor | None] = []
        self._has_sparse = any(getattr(module, "sparse", False) for module in model.modules())
        self._is_gathered = False
        self._pulls = 0
        self._states = OptimizerStates(optimizer, job.tensors, [None if name is None else state[name]
                                                                for name in self._names])
        super().__init__(job, {}, None, on_save, on_load)

    # --- where the tensors are ---------------------------------------------------------------------------------------

    def _set_arrays(self, arrays: Any, gradients: Any) -> None:
        self._values = MemoryGroup(self.job.tensors, True)
        self._gradients = MemoryGroup(self.job.parameters, False)

    def _parameters(self) -> list[torch.Tensor | None]:
        """The model's tensor of each of the job's parameters; None: it stays here."""
        if None in self._places:
            state = _tensors_of(self.model)
            return [None if name is None else state[name] for name in self._names]
        return [members[key] for members, key in self._places]

    def _find_values(self) -> None:
        """Takes the addresses anew, as model and optimizer may have moved their tensors."""
        parameters = self._found = self._parameters()
        found = list(parameters)
        for tensor in self.job.tensors[len(parameters):]:
            found.append(self._states.tensor_of(tensor.index, parameters[tensor.parameter]))
        if self.job.pushes_gradient and self._pulls > 0:
            # No gradient averages running statistics.
            found = [value if name in self._trained else None for name, value in zip(self._names, found)]
        self._values.use(found)

    def _find_gradients(self) -> None:
        """The gradients of what `_find_values` has found."""
        found = [None if value is None else value.grad for value in self._found]
        if self._has_sparse:
            found = [grad if grad is None else grad.to_dense() if grad.is_sparse else grad for grad in found]
        self._gradients.use(found)
        self._gradients.each_copy(TensorMemory.gather_gradient)

    def _gather(self) -> None:
        """Copies what does not lie where the library reads it."""
        if not self._is_gathered:
            self._find_values()
            self._values.each_copy(TensorMemory.gather)
            self._is_gathered = True

    def _scatter(self) -> None:
        self._values.each_copy(TensorMemory.scatter)
        self._is_gathered = False

    # --- the calls ---------------------------------------------------------------------------------------------------

    def _train(self, examples: int, loss: Any) -> None:
        minibatch = self.minibatch
        if self.optimizer is not None:
            self._states.step(minibatch.rate)
        # The library may read and write the values in a step that an exchange follows.
        if minibatch.last:
            self._gather()
        self.job.step(examples, loss.item() if isinstance(loss, torch.Tensor) else loss)

    def _exchange(self) -> None:
        self._gather()
        if self.job.pushes_gradient:
            self._find_gradients()
        self.job.exchange_sets(self._values.set, self._gradients.set)
        self._scatter()

    def _pull(self) -> bool:
        self._find_values()
        self.job.pull_sets(self._values.set)
        self._scatter()
        self._pulls += 1
        return True

    def _evaluate(self, score: float, loss: float, rows: int) -> None:
        self.job.evaluate(float(score), float(loss), int(rows))
        self._scatter()

    # --- what a checkpoint keeps -------------------------------------------------------------------------------------

    def _local_tensors(self) -> dict[str, torch.Tensor]:
        """What no server has this worker's values of: local names, counters, statistics beside pushed gradients."""
        shared = {name for name in self._names if name in self._trained or not self.job.pushes_gradient}
        return {name: value for name, value in _tensors_of(self.model).items() if name not in shared}

    def _state_to_save(self) -> bytes:
        own = self.on_save() if self.on_save else b""
        saved = {"local": self._local_tensors(), "random": torch.get_rng_state(),
                 "own": torch.frombuffer(bytearray(own), dtype=torch.uint8) if own else torch.empty(0),
                 "random of GPUs": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}
        if self.optimizer is not None:
            saved["optimizer"] = self._states.private_state()
        return to_bytes(saved)

    def _adopt_state(self, state: bytes) -> bytes:
        if not state:
            # The first pull finds the optimizer as it was given. A later one goes back to where nothing was saved.
            if self._pulls > 1 and self.optimizer is not None:
                self._states.begin_again()
            return b""
        saved = from_bytes(state)
        with torch.no_grad():
            for name, value in _tensors_of(self.model).items():
                if name in saved["local"]:
                    value.copy_(saved["local"][name])
        torch.set_rng_state(saved["random"])
        if saved["random of GPUs"] and len(saved["random of GPUs"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(saved["random of GPUs"])
        if self.optimizer is not None:
            self._states.load(saved["optimizer"])
        return saved["own"].numpy().tobytes()


def _places(model: torch.nn.Module) -> dict[str, tuple[dict, str]]:
    """{name in the state_dict: (the module's dict, its key there)}: a tensor is found without making a state_dict."""
    places = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for members in (module._parameters, module._buffers):
            places.update({(prefix + "." if prefix else "") + key: (members, key) for key in members})
    return places


__all__ = ["TorchTrainer", "attach", "save_initial"]
