"""A member that sends any sequence of calls costs itself only.

A member of a real job makes calls that a worker makes, in any order, with numbers that are right or not, again, or cut
off, and ends without a word. The job's other worker trains on. Sequences are drawn from a seed, which a failure names:

    bazel run //tests/e2e:member_calls_test                                    # the short form
    bazel test //tests/e2e:member_calls_test --test_env=TESSERA_MEMBER_SEEDS=1:1000   # seeds 1 to 1000 of each method
"""
import os
import random
import re
import sys
import time
import unittest

import grpc

from cluster import DIGITS_ROWS, ROOT, SOON, Cluster, Test, await_true, digits, memory, tessera

sys.path.insert(0, os.path.join(ROOT, "deploy/examples"))
import python_client  # noqa: E402

FIRST, LAST = (int(n) for n in os.environ.get("TESSERA_MEMBER_SEEDS", "1:2").split(":"))
CALLS = 80
# Long enough for a machine that is busy with other tests: the worker that behaves keeps it.
LEASE = "3s"
METHODS = ({"data_parallel": {}}, {"async_sgd": {"local_steps": 1}}, {"local_sgd": {"local_steps": 2}})
ODD = (0, 1, 2, 7, 1000, 1 << 20, 1 << 32, (1 << 40) + 1, 1 << 63, (1 << 64) - 1)
GROWTH_MAX = 256 << 20
CALL_SECONDS = 0.5


class Member(python_client.Worker):
    """A worker that may make any call at any time."""

    def __init__(self, seed, *arguments):
        super().__init__(*arguments)
        self.random, self.made = random.Random(seed), []

    def number(self, right):
        """Right most of the time."""
        way = self.random.random()
        if way < 0.6:
            return right % (1 << 64)
        if way < 0.8:
            return (right + self.random.choice((-2, -1, 1, 2))) % (1 << 64)
        return self.random.choice(ODD)

    def progress(self):
        return dict(step=self.number(self.exchange), exchange=self.number(self.exchange),
                    examples=self.number(32 * self.exchange), epoch=self.number(1),
                    train_loss=self.random.choice((1.0, float("nan"), float("inf"), -1.0)))

    def report(self):
        return self.co.WorkerReport(rank=self.random.choice((self.rank, 0, 1, 9)), steps=self.number(self.exchange),
                                    examples=self.number(7), exchanges=self.number(self.exchange),
                                    compute_seconds=self.random.choice((1.0, float("nan"), -1.0)))

    def unary(self, method, reply, **fields):
        request = getattr(self.co, method + "Request")(member=self.member, **fields)
        return self.channel.unary_unary(
            "/tessera.v1.Coordinator/" + method, request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=reply.FromString)(request, timeout=CALL_SECONDS)

    def call_join(self):
        request = self.co.JoinRequest(
            job_digest=self.digest, description="fuzz", protocol=1, rows=self.number(DIGITS_ROWS),
            member=self.random.choice((0, self.member)), life=self.random.getrandbits(63),
            layout_hash=self.random.choice((0, self.layout_hash)))
        return self.channel.unary_unary(
            "/tessera.v1.Coordinator/Join", request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=self.co.JoinReply.FromString)(request, timeout=CALL_SECONDS)

    def call_renew(self):
        self.unary("Renew", self.co.RenewReply, progress=self.progress(), drain_seen=self.number(0),
                   servers_known=self.number(0), ends_warm_up=self.random.random() < 0.1)

    def call_begin_training(self):
        self.unary("BeginTraining", self.co.BeginTrainingReply)

    def call_begin_epoch(self):
        self.unary("BeginEpoch", self.co.EpochCut, epoch=self.number(1), step=self.number(self.exchange))

    def call_evaluate(self):
        self.unary("Evaluate", self.co.EvaluateReply, evaluation=self.number(1), attempt=self.number(1),
                   stage=self.random.randrange(4), progress=self.progress(), loss_sum=1.0,
                   loss_count=self.number(10), constants=self.random.randbytes(self.random.choice((0, 3, 1000))),
                   scores=self.co.Scores(loss_sum=1, correct=self.number(1), rows=self.number(10)),
                   last=self.random.random() < 0.2, round=self.number(1))

    def call_saved(self):
        self.unary("Saved", self.co.SavedReply, number=self.number(1), error=self.random.choice(("", "broken")),
                   file=self.co.SavedFile(name=self.random.choice(("", "../x", "worker-1")), bytes=self.number(1)),
                   progress=self.progress(), sites=self.number(2))

    def call_leave(self):
        # Once in a while, as little is left to say afterwards.
        if self.random.random() < 0.1:
            self.unary("Leave", self.co.LeaveReply, report=self.report(), error=self.random.choice(("", "fuzz")))

    def call_push(self):
        server = self.random.randrange(len(self.servers))
        size = self.sizes[server]
        header = self.ps.PushHeader(
            caller=self.caller(), keys=self.ps.KeySet(dense=self.ps.DenseKeys()),
            exchange=self.number(self.exchange + 1), base_version=self.number(self.bases[server]),
            kind=self.random.choice((0, 0, 0, 1, 2)), payload_bytes=self.number(size), layout_hash=self.layout_hash,
            examples=self.number(32))
        payload = bytes(self.random.choice((size, size, size, size - 4, 0, 2 * size)))
        if self.random.random() < 0.1:
            payload = b"\xff" * len(payload)  # No numbers.
        chunks = [self.ps.PushChunk(header=header, payload=payload[:size // 2]),
                  self.ps.PushChunk(payload=payload[size // 2:])]
        if self.random.random() < 0.2:
            chunks = chunks[:1] * self.random.randrange(3)
        self.servers[server].stream_unary(
            "/tessera.v1.ParameterServer/Push", request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=self.ps.PushReply.FromString)(iter(chunks), timeout=self.seconds())

    def call_exchange(self):
        """What a worker does."""
        self.exchange += 1
        for server in range(len(self.servers)):
            header = self.ps.PushHeader(
                caller=self.caller(), keys=self.ps.KeySet(dense=self.ps.DenseKeys()), exchange=self.exchange,
                base_version=self.bases[server], kind=self.kind, payload_bytes=self.sizes[server],
                layout_hash=self.layout_hash, examples=32)
            self.servers[server].stream_unary(
                "/tessera.v1.ParameterServer/Push", request_serializer=lambda m: m.SerializeToString(),
                response_deserializer=self.ps.PushReply.FromString)(
                    iter([self.ps.PushChunk(header=header, payload=bytes(self.sizes[server]))]), timeout=CALL_SECONDS)

    def call_pull(self):
        server = self.random.randrange(len(self.servers))
        request = self.ps.PullRequest(caller=self.caller(), keys=self.ps.KeySet(dense=self.ps.DenseKeys()),
                                      after_exchange=self.number(self.exchange))
        for chunk in self.servers[server].unary_stream(
                "/tessera.v1.ParameterServer/Pull", request_serializer=lambda m: m.SerializeToString(),
                response_deserializer=self.ps.Chunk.FromString)(request, timeout=self.seconds()):
            if chunk.HasField("header"):
                self.bases[server] = chunk.header.version

    def seconds(self):
        """Some calls are cut off."""
        return self.random.choice((CALL_SECONDS, CALL_SECONDS, 0.002))

    def run(self, calls):
        kinds = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("call_")]
        for _ in range(calls):
            kind = self.random.choice(kinds)
            try:
                kind()
                self.made.append(kind.__name__[5:])
            except grpc.RpcError as error:
                self.made.append("%s:%s" % (kind.__name__[5:], error.code().name))


class MemberCalls(Test):
    test_max = 240 + 30 * (LAST - FIRST)

    def test_a_member_that_sends_any_sequence_of_calls_costs_itself_only(self):
        ps, co = python_client.load_messages(ROOT)
        for method in METHODS:
            for seed in range(FIRST, LAST + 1):
                with self.case("%s seed %d" % (list(method)[0], seed)):
                    self.sequence(method, seed, ps, co)

    def steps(self, cluster):
        """Of the worker that behaves."""
        return int(next(m for m in cluster.status()["members"] if m["member"] == "1")["progress"]["step"])

    def sequence(self, method, seed, ps, co):
        cluster = Cluster(self, digits(method=method, epochs=1000000, lease=LEASE, workers=2), workers=1)
        cluster.workers[0].await_output("waiting for worker 1")
        digest = re.search(r"^# digest +(\S+)", tessera("check", cluster.path)[1], re.M).group(1)
        member = Member(seed, cluster.coordinator, digest, ps, co)
        member.join(rows=DIGITS_ROWS)
        member.kind = 0 if "local_sgd" not in method else 1
        member.call_begin_training()
        member.sizes = [4 * len(values) for values in member.pull()]
        before = [memory(server) for server in cluster.servers]
        member.run(CALLS)
        member.channel.close()
        for channel in member.servers:
            channel.close()
        said = "seed %d: %s\n" % (seed, " ".join(member.made))
        for process in cluster.servers + cluster.workers:
            self.assertTrue(process.alive, said + cluster.logs())
        # Whatever it held up goes on once it is lost, or has left.
        await_true("it is gone", lambda: [m["state"] for m in cluster.status()["members"]].count("training") <= 1,
                   SOON, lambda: said + cluster.logs())
        # The job's own step may be the number that the member told last.
        at = self.steps(cluster)
        await_true("the other trains on", lambda: self.steps(cluster) > at + 20, SOON, lambda: said + cluster.logs())
        for server, was in zip(cluster.servers, before):
            self.assertLess(memory(server) - was, GROWTH_MAX, said)
        cluster.drain()
        report = cluster.finish()
        self.assertEqual(report["outcome"], "stopped", said)


if __name__ == "__main__":
    unittest.main()
