"""A worker of a job of tensors: a program with a model of its own, on the wire contract alone (proto/).

Each step pulls the values, pushes gradients towards a target of this worker, or changes of its own, and its evaluations
report the mean distance as score. What it computes follows from rank, step and values, so that a job is repeatable.
usage: tensor_worker.py PROTO_ROOT DIGEST [--kind gradient|delta] [--pause SECONDS] [--exit CODE]; the environment says
what to join, as `tessera run --worker` sets it.
"""
import argparse
import os
import random
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "deploy", "examples"))
from python_client import PROTOCOL, Worker, connect, load_messages  # noqa: E402


class TensorWorker(Worker):
    def join_as(self, rank):
        request = self.co.JoinRequest(job_digest=self.digest, description="tensors:%d" % os.getpid(), rank=rank,
                                      protocol=PROTOCOL, life=random.getrandbits(63) | 1)
        while True:
            reply = self.coordinator("Join", request, self.co.JoinReply)
            if reply.admitted:
                break
            request.member = reply.member
            time.sleep(0.05)
        self.member, self.rank, self.generation = reply.member, reply.rank, reply.generation
        self.layout_hash, self.exchange = reply.layout_hash, reply.first_exchange - 1
        self.servers = [connect(address) for address in reply.servers]
        return reply

    def push_as(self, updates, kind):
        self.exchange += 1
        for server, base, update in zip(self.servers, self.bases, updates):
            payload = np.ascontiguousarray(update, "<f4").tobytes()
            header = self.ps.PushHeader(caller=self.caller(), keys=self.ps.KeySet(dense=self.ps.DenseKeys()),
                                        exchange=self.exchange, base_version=base, kind=kind,
                                        payload_bytes=len(payload), layout_hash=self.layout_hash, examples=4)
            self.call(server, "ParameterServer", "Push", iter([self.ps.PushChunk(header=header, payload=payload)]),
                      self.ps.PushReply, "in")

    def progress(self, step, epoch):
        return {"step": step, "exchange": self.exchange, "epoch": epoch}

    def evaluate(self, step, epoch, last, values):
        """Whether training ends here."""
        number, attempt, stage = 0, 0, "ARRIVE"
        while True:
            request = self.co.EvaluateRequest(member=self.member, evaluation=number, attempt=attempt,
                                              stage=self.co.EvaluateStage.Value(stage),
                                              progress=self.progress(step, epoch), last=last, round=step)
            if stage == "ARRIVE":
                request.loss_sum, request.loss_count = 3.0, 2
            if stage == "SCORE":
                distance = sum(float(np.abs(each - self.rank).sum()) for each in values)
                request.scores.CopyFrom(self.co.Scores(loss_sum=2.0, rows=1 + self.rank, score_sum=distance))
            reply = self.coordinator("Evaluate", request, self.co.EvaluateReply)
            number, attempt = reply.evaluation, reply.attempt
            if reply.finished or stage == "SCORE":
                return reply.stop
            stage = "SCORE"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("proto_root")
    parser.add_argument("digest")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--kind", default="gradient")
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--exit", type=int)
    arguments = parser.parse_args()
    print("worker", os.environ["TESSERA_RANK"], "of", os.environ["TESSERA_JOB"], flush=True)
    if arguments.exit is not None:
        sys.exit(arguments.exit)
    ps, co = load_messages(arguments.proto_root)
    worker = TensorWorker(os.environ["TESSERA_COORDINATOR"], arguments.digest, ps, co)
    joined = worker.join_as(int(os.environ["TESSERA_RANK"]))
    worker.coordinator("BeginTraining", co.BeginTrainingRequest(member=worker.member), co.BeginTrainingReply)
    step, epoch, end, done = joined.first_step, joined.epoch, 0, False
    while step < arguments.steps and not done:
        if step >= end:
            cut = worker.coordinator("BeginEpoch", co.BeginEpochRequest(member=worker.member, epoch=epoch, step=step),
                                     co.EpochCut)
            end = cut.first_step + cut.steps
        values = worker.pull()
        if arguments.kind == "gradient":
            worker.push_as([each - worker.rank for each in values], ps.GRADIENT)
        else:
            worker.push_as([np.full_like(each, 0.5 + worker.rank) for each in values], ps.DELTA)
        step += 1
        time.sleep(arguments.pause)
        renewed = worker.renew(step)
        if step == end:
            epoch += 1
        last = step == arguments.steps
        drains = 0 < renewed.drain_exchange <= worker.exchange
        if step == end or last or drains:
            done = worker.evaluate(step, epoch, last, worker.pull()) or drains
    worker.leave(step, 4 * step)


if __name__ == "__main__":
    main()
