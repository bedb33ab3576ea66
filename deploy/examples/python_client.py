#!/usr/bin/python3
"""A worker in plain Python, as an example of the wire contract (proto/).

It joins a running job as an ordinary member, pulls the parameters, computes the gradient of softmax regression
on the digits with numpy, and pushes. Nothing here knows the C++ side: the messages are generated from proto/.

    # a job whose model is one linear layer, on two servers, waiting for one worker
    tessera-server --job deploy/jobs/digits_linear.yaml --rank 0 --listen 127.0.0.1:7000 &
    tessera-server --job deploy/jobs/digits_linear.yaml --rank 1 --listen 127.0.0.1:7001 --coordinator 127.0.0.1:7000 &
    deploy/examples/python_client.py 127.0.0.1:7000 --digest $(tessera check deploy/jobs/digits_linear.yaml |
        awk '/^# digest/ {print $3}') --data deploy/data/optdigits

Needs Debian's python3-grpcio, python3-protobuf, python3-numpy and protobuf-compiler.
"""
import argparse
import gzip
import importlib
import os
import random
import subprocess
import sys
import tempfile
import time

import grpc
import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROTOCOL = 1


def load_messages(root):
    """Generates and imports the Python messages of the protos that a worker needs."""
    out = tempfile.mkdtemp(prefix="tessera-proto-")
    protos = ["proto/parameter_server.proto", "proto/coordinator.proto", "proto/core.proto",
              "proto/peers.proto", "proto/progress.proto"]
    subprocess.run(["protoc", "-I" + root, "--python_out=" + out] + protos, check=True, cwd=root)
    sys.path.insert(0, out)
    return (importlib.import_module("proto.parameter_server_pb2"),
            importlib.import_module("proto.coordinator_pb2"))


def read_idx(path):
    """An IDX file of bytes as an array."""
    with gzip.open(path, "rb") as file:
        data = file.read()
    dimensions = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def connect(address):
    """Never by a proxy that the environment names for other programs."""
    return grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])


class Worker:
    """One member of one job."""

    def __init__(self, address, digest, ps, co):
        self.ps, self.co, self.digest = ps, co, digest
        self.channel = connect(address)
        self.servers = []
        self.bases = []
        self.exchange = 0

    def call(self, channel, service, method, request, reply_type, stream=None):
        """One RPC by name: unary, or with a stream of answers ("out") or of requests ("in")."""
        kind = {None: channel.unary_unary, "out": channel.unary_stream, "in": channel.stream_unary}[stream]
        rpc = kind("/tessera.v1.%s/%s" % (service, method),
                   request_serializer=lambda m: m.SerializeToString(),
                   response_deserializer=reply_type.FromString)
        return rpc(request)

    def coordinator(self, method, request, reply_type):
        return self.call(self.channel, "Coordinator", method, request, reply_type)

    def join(self, rows, layout_hash=0):
        """Asks until admitted, and says for whom the job waits."""
        request = self.co.JoinRequest(job_digest=self.digest, description="python:%d" % os.getpid(),
                                      protocol=PROTOCOL, rows=rows, layout_hash=layout_hash,
                                      life=random.getrandbits(63) | 1)
        said = None
        while True:
            reply = self.coordinator("Join", request, self.co.JoinReply)
            if reply.admitted:
                break
            request.member = reply.member
            if list(reply.waiting_for) != said:
                said = list(reply.waiting_for)
                print("waiting for", ", ".join(said), file=sys.stderr)
            time.sleep(0.05)
        self.member, self.rank = reply.member, reply.rank
        self.generation, self.layout_hash = reply.generation, reply.layout_hash
        self.exchange = reply.first_exchange - 1
        self.servers = [connect(a) for a in reply.servers]
        return reply

    def caller(self):
        return self.ps.Caller(member=self.member, job_digest=self.digest, generation=self.generation)

    def pull(self):
        """The values of every server, as one array each, in the dense order."""
        values, self.bases = [], []
        request = self.ps.PullRequest(caller=self.caller(), keys=self.ps.KeySet(dense=self.ps.DenseKeys()),
                                      after_exchange=self.exchange)
        for server in self.servers:
            payload = b""
            for chunk in self.call(server, "ParameterServer", "Pull", request, self.ps.Chunk, "out"):
                if chunk.HasField("header"):
                    self.bases.append(chunk.header.version)
                payload += chunk.payload
            values.append(np.frombuffer(payload, "<f4"))
        return values

    def push(self, updates, examples):
        """Sends one gradient per server as the next exchange."""
        self.exchange += 1
        replies = []
        for server, base, update in zip(self.servers, self.bases, updates):
            payload = np.ascontiguousarray(update, "<f4").tobytes()
            header = self.ps.PushHeader(caller=self.caller(), keys=self.ps.KeySet(dense=self.ps.DenseKeys()),
                                        exchange=self.exchange, base_version=base, kind=self.ps.GRADIENT,
                                        payload_bytes=len(payload), layout_hash=self.layout_hash,
                                        examples=examples)
            chunks = [self.ps.PushChunk(header=header, payload=payload)]
            replies.append(self.call(server, "ParameterServer", "Push", iter(chunks), self.ps.PushReply, "in"))
        return replies

    def renew(self, step):
        progress = {"step": step, "exchange": self.exchange}
        return self.coordinator("Renew", self.co.RenewRequest(member=self.member, progress=progress),
                                self.co.RenewReply)

    def leave(self, steps, examples):
        report = self.co.WorkerReport(rank=self.rank, steps=steps, examples=examples, exchanges=steps,
                                      backend="numpy")
        self.coordinator("Leave", self.co.LeaveRequest(member=self.member, report=report), self.co.LeaveReply)


class Softmax:
    """One linear layer with bias; knows how its two parameters are cut over the servers."""

    def __init__(self, inputs, classes, servers):
        self.inputs, self.classes = inputs, classes
        self.cuts = [(classes * s // servers, classes * (s + 1) // servers) for s in range(servers)]

    def assemble(self, values):
        weight = np.concatenate([v[:(b - a) * self.inputs].reshape(-1, self.inputs)
                                 for v, (a, b) in zip(values, self.cuts)])
        bias = np.concatenate([v[(b - a) * self.inputs:] for v, (a, b) in zip(values, self.cuts)])
        return weight, bias

    def cut(self, weight, bias):
        return [np.concatenate([weight[a:b].ravel(), bias[a:b]]) for a, b in self.cuts]

    def gradient(self, weight, bias, x, labels):
        logits = x @ weight.T + bias
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        loss = -np.log(p[np.arange(len(labels)), labels]).mean()
        p[np.arange(len(labels)), labels] -= 1
        p /= len(labels)
        return p.T @ x, p.sum(axis=0), loss


def main():
    parser = argparse.ArgumentParser(description="Trains softmax regression on the digits through Tessera.")
    parser.add_argument("address", help="HOST:PORT of server 0")
    parser.add_argument("--digest", required=True, help="the job's digest, from `tessera check`")
    parser.add_argument("--data", required=True, help="folder of the optdigits IDX files")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--proto-root", default=ROOT, help="folder that holds proto/")
    arguments = parser.parse_args()

    ps, co = load_messages(arguments.proto_root)
    images = read_idx(os.path.join(arguments.data, "train-images-idx3-ubyte.gz"))
    labels = read_idx(os.path.join(arguments.data, "train-labels-idx1-ubyte.gz"))
    x = images.reshape(len(images), -1).astype(np.float32) / 16

    worker = Worker(arguments.address, arguments.digest, ps, co)
    worker.join(rows=len(x))
    worker.coordinator("BeginTraining", co.BeginTrainingRequest(member=worker.member), co.BeginTrainingReply)
    model = Softmax(x.shape[1], 10, len(worker.servers))
    generator = np.random.default_rng(0)
    renewed = time.monotonic()
    for step in range(arguments.steps):
        weight, bias = model.assemble(worker.pull())
        rows = generator.choice(len(x), arguments.batch, replace=False)
        dw, db, loss = model.gradient(weight, bias, x[rows], labels[rows])
        worker.push(model.cut(dw, db), arguments.batch)
        if step % 50 == 0 or step + 1 == arguments.steps:
            print("step %d loss %.4f" % (step, loss))
        if time.monotonic() - renewed > 0.5:
            worker.renew(step)
            renewed = time.monotonic()
    weight, bias = model.assemble(worker.pull())
    test_x = read_idx(os.path.join(arguments.data, "test-images-idx3-ubyte.gz")).reshape(-1, x.shape[1]) / 16.0
    test_labels = read_idx(os.path.join(arguments.data, "test-labels-idx1-ubyte.gz"))
    accuracy = ((test_x @ weight.T + bias).argmax(axis=1) == test_labels).mean()
    print("test accuracy %.4f" % accuracy)
    worker.leave(arguments.steps, arguments.steps * arguments.batch)


if __name__ == "__main__":
    main()
