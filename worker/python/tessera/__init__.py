"""Tessera: a program with a model of its own takes part in a job as a worker.

    job = tessera.join("job.yaml")
    trainer = tessera.torch.attach(job, model, optimizer)      # PyTorch; tessera.Trainer(job, arrays) for NumPy

docs/own_models.md has a tutorial. Needs NumPy and the library libtessera_client.so (see tessera.library).
"""
from tessera.errors import CallTimeout, JobLost, LibraryNotFound, Status, TesseraError
from tessera.job import Job, join
from tessera.library import version
from tessera.signals import leave_on_signals
from tessera.subnet_trainer import SubnetTrainer
from tessera.tensor import Minibatch, Round, Tensor, Verdict
from tessera.tensor_file import load_tensors, save_tensors
from tessera.trainer import Trainer

__all__ = ["CallTimeout", "Job", "JobLost", "LibraryNotFound", "Minibatch", "Round", "Status", "SubnetTrainer",
           "Tensor", "TesseraError", "Trainer", "Verdict", "join", "leave_on_signals", "load_tensors", "save_tensors",
           "version"]


def __getattr__(name: str):
    """`tessera.torch` is imported when it is first named, so that NumPy programs do without PyTorch."""
    if name == "torch":
        import importlib
        return importlib.import_module("tessera.torch")
    raise AttributeError("module 'tessera' has no attribute '%s'" % name)
