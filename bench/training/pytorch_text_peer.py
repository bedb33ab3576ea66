#!/usr/bin/python3
"""The peer of bench/training/text.py: PyTorch with the network, windows, optimizer and schedule of a text's job file.

    pytorch_text_peer.py JOB FOLDER --seed N [--steps N]

JOB is the job file as JSON, FOLDER holds train.txt and test.txt. One thread. Prints one JSON object: seconds of
training without evaluation, and the loss over all windows of the test text. Attention is PyTorch's fastest of 1.13, as
torch.nn.MultiheadAttention calls it. Needs Debian's python3-torch.
"""
import argparse
import json
import math
import os
import sys
import time

import numpy as np
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/examples"))
from pytorch_model import module_of  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job")
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    with open(arguments.job) as file:
        job = json.load(file)
    texts = []
    for part in ("train", "test"):
        with open(os.path.join(arguments.folder, part + ".txt"), encoding="utf-8") as file:
            texts.append(file.read())
    letters = {letter: i for i, letter in enumerate(sorted(set(texts[0])))}
    train, test = (torch.from_numpy(np.array([letters[letter] for letter in text])) for text in texts)
    context = job["model"]["input"]["tokens"]["context"]
    keys = job["train"]
    batch, steps = keys["batch_size"], arguments.steps or keys["steps"]
    (_, adamw), = keys["optimizer"].items()
    schedule = keys["schedule"]
    cosine = schedule["decay"]["cosine"]
    net = module_of(job["model"])
    (_, embedding), = job["model"]["layers"][0].items()
    for name in ("weight", "positions"):
        torch.nn.init.normal_(getattr(net.layers[0], name), std=embedding.get("stddev", 1.0))
    optimizer = torch.optim.AdamW(net.parameters(), lr=adamw["learning_rate"], betas=(0.9, adamw.get("beta2", 0.999)),
                                  weight_decay=adamw.get("weight_decay", 0.01))

    def rate(examples):
        at = min(1.0, examples / cosine["examples"])
        decay = cosine["floor"] + (1 - cosine["floor"]) * 0.5 * (1 + math.cos(math.pi * at))
        return adamw["learning_rate"] * decay * min(1.0, (examples + batch) / schedule["warmup"])

    seconds = 0.0
    for step in range(steps):
        begin = time.perf_counter()
        at = torch.randint(len(train) - context, (batch,))
        x = torch.stack([train[i:i + context] for i in at])
        y = torch.stack([train[i + 1:i + context + 1] for i in at])
        for group in optimizer.param_groups:
            group["lr"] = rate(step * batch)
        loss = torch.nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), keys["clip_norm"])
        optimizer.step()
        seconds += time.perf_counter() - begin
    net.eval()
    rows = (len(test) - 1) // context
    x, y = test[:rows * context].reshape(rows, context), test[1:rows * context + 1].reshape(rows, context)
    total = 0.0
    with torch.enable_grad():  # the fast path of evaluation wants biases
        for i in range(0, rows, 64):
            out = net(x[i:i + 64]).detach()
            total += float(torch.nn.functional.cross_entropy(out.flatten(0, 1), y[i:i + 64].flatten(), reduction="sum"))
    print(json.dumps({"seconds": seconds, "test_loss": total / (rows * context)}))


if __name__ == "__main__":
    main()
