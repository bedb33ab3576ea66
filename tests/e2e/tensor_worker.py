"""A worker of a job of tensors: a program with a model of its own, on the wire contract alone (proto/).

Each step pulls the values, pushes gradients towards a target of this worker, or changes of its own, and its evaluations
report the mean distance as score. What it computes follows from rank, step and values, so that a job is repeatable.
usage: tensor_worker.py PROTO_ROOT DIGEST [--steps N] [--kind gradient|delta] [--pause SECONDS] [--checkpoints FOLDER]
[--exit CODE]; the environment says what to join, as `tessera run --worker` sets it.
"""
import argparse
import ctypes
import os
import random
import struct
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
        self.evaluation = 0
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

    def save_last(self, folder):
        """Writes this worker's file of the last checkpoint, which has nothing in it, where there is one."""
        saved = 0
        while True:
            reply = self.coordinator("Saved", self.co.SavedRequest(member=self.member, writes_again=True),
                                     self.co.SavedReply)
            if reply.HasField("mark") and reply.mark.number > saved:
                saved = reply.mark.number
                header = b"{}" + b" " * 54
                text = struct.pack("<Q", len(header)) + header
                xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
                xxh3.restype, xxh3.argtypes = ctypes.c_uint64, (ctypes.c_char_p, ctypes.c_size_t)
                total, name = xxh3(text, len(text)), "worker-%d.safetensors" % self.rank
                place = os.path.join(folder, "partial-step-%012d" % reply.mark.folder_step)
                with open(os.path.join(place, "%s.%016x" % (name, total)), "wb") as file:
                    file.write(text)
                request = self.co.SavedRequest(member=self.member, number=saved,
                                               progress=self.progress(self.step, self.epoch))
                request.file.name, request.file.bytes, request.file.sum = name, len(text), total
                self.coordinator("Saved", request, self.co.SavedReply)
            elif not reply.wait and not reply.HasField("mark"):
                return
            time.sleep(0.02)

    def evaluate(self, step, epoch, last, values):
        """Whether training ends here."""
        number, attempt, stage = self.evaluation + 1 if self.evaluation else 0, 0, "ARRIVE"
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
            if reply.finished or stage == "SCORE" and not reply.restart:
                self.evaluation = reply.evaluation
                return reply.stop
            if reply.restart:
                stage = "ARRIVE"
                continue
            stage = "SCORE"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("proto_root")
    parser.add_argument("digest")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--kind", default="gradient")
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--exit", type=int)
    parser.add_argument("--checkpoints")
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
    worker.step, worker.epoch = step, epoch
    if arguments.checkpoints:
        worker.save_last(arguments.checkpoints)
    worker.leave(step, 4 * step)


if __name__ == "__main__":
    main()
