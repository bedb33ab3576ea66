"""What tests of checkpoints ask of jobs and folders."""
import json
import os

from cluster import Test, digits, run_to_end

MOMENTUM = {"sgd": {"learning_rate": 0.1, "momentum": 0.9}}

# Steps so long that a checkpoint is agreed on well before the step comes that it is due at: one that is not lies
# later, or at the job's end alone.
UNHURRIED = {"TESSERA_FAILPOINTS": "worker.step=sleep:20"}


class CheckpointTest(Test):
    def small(self, **changes):
        return digits(**dict({"evaluate_every": 1, "steps": 90, "lease": "4s"}, **changes))


def steps_in(folder):
    """The steps of the whole checkpoints in a directory, ascending."""
    return sorted(int(name[5:]) for name in os.listdir(folder) if name.startswith("step-"))


def step_folder(folder, step):
    return os.path.join(folder, "step-%012d" % step)


def members_of(folder):
    """The members that wrote a checkpoint, as its manifest has them."""
    with open(os.path.join(folder, "manifest.json")) as file:
        return json.load(file)["members"]


def keeping(job, folder, every, keep=100):
    return dict(job, checkpoint={"directory": folder, "every_steps": every, "keep": keep})


def save_on_the_way(test, job, folder, every):
    """Trains to the end; the report, and the step of the first checkpoint, which is in mid-run."""
    report = run_to_end(test, keeping(job, folder, every), env=UNHURRIED)
    steps = steps_in(folder)
    test.assertGreaterEqual(len(steps), 2, "checkpoints of steps %s" % steps)
    return report, steps[0]


def restoring(job, path):
    return dict(job, checkpoint={"restore": path})


def course(report):
    """How training went, and to where."""
    return {
        "parameters": report["parameters_hash"],
        "steps": report["steps"],
        "final": report["final"],
        "history": [{key: value for key, value in entry.items() if key != "seconds"} for entry in report["history"]],
    }


def sameness(report):
    """What must be the same however often a job was stopped."""
    return dict(course(report), rounds=report["rounds"], examples=report["parameter_examples"])
