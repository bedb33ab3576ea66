"""Many faults in one job, drawn from a seed; and what must be true of it all the same.

    bazel test //tests/fault:chaos_test --test_output=all --test_timeout=3600 \\
        --test_arg=--faults=100 --test_arg=--seed=7 [--test_arg=--method=async_sgd]
    ... [--test_arg=--replicas [--test_arg=--coordinator=etcd] [--test_arg=--spare-workers]]

Workers and servers are killed, or stopped and perhaps woken again, sometimes two at once; whoever has ended is started
again. With --replicas servers have standbys (standby_faults.py), otherwise checkpoints alone (checkpoint_faults.py).
Server 0 has the coordinator in it, and is struck where --coordinator says that its state is kept. In the end:

    the job ends by itself when it is asked to, and scores what a quiet one scores, within a margin
    no push that was acknowledged is lost or counted twice

The last is seen from outside: workers log every exchange that all servers have acknowledged, and the report says how
many pushes the servers have folded. The two must agree, but for the last push of a worker that was removed, which may
have been folded by some servers and not be acknowledged, or the reverse. What was acknowledged after the checkpoint
that the job went back to is void.

What is told of times: how long a fault went unnoticed, where it must be noticed, and then until all train on; of
workers that are stopped, and of two faults at once, the time since the fault, which has the stop in it.
"""
import argparse
import sys
import unittest

from chaos_job import METHODS, ChaosJob
from checkpoint_faults import CheckpointFaults
from standby_faults import StandbyFaults


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-v", action="store_true")
    parser.add_argument("--faults", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    # Of seconds. On a machine that does much else a short one is lost without any fault.
    parser.add_argument("--lease", type=float, default=4.0)
    parser.add_argument("--method", choices=sorted(METHODS), default="local_sgd")
    parser.add_argument("--servers", type=int)
    parser.add_argument("--replicas", action="store_true", help="cluster.replicas: 1")
    parser.add_argument("--coordinator", choices=("directory", "etcd"), help="where its state is kept")
    parser.add_argument("--spare-workers", action="store_true", help="strike servers only")
    arguments = parser.parse_args()
    if not arguments.replicas and (arguments.coordinator or arguments.spare_workers):
        parser.error("--coordinator and --spare-workers want --replicas")
    # Leaders never return to where they were: among five some shard's stays off server 0, whatever is struck.
    arguments.servers = arguments.servers or (5 if arguments.replicas else 3)
    return arguments


if __name__ == "__main__":
    ChaosJob.arguments = parse()
    kind = StandbyFaults if ChaosJob.arguments.replicas else CheckpointFaults
    job = unittest.TestSuite([kind("test_a_job_with_many_faults_ends_as_a_quiet_one")])
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(job).wasSuccessful())
