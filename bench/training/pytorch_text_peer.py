#!/usr/bin/python3
"""The peer of bench/training/text.py: PyTorch with the network, windows, optimizer and schedule of a text's job file.

    pytorch_text_peer.py JOB FOLDER --seed N [--steps N] [--device cuda] [--precision bf16] [--compile]

JOB is the job file as JSON, FOLDER holds train.txt and test.txt. One thread. Prints one JSON object: seconds of
training without evaluation, on a GPU as if the first tenth of the steps were as fast as the others, and the loss over
all windows of the test text. Attention is PyTorch's fastest: of 1.13, as torch.nn.MultiheadAttention calls it; since
2.0 scaled_dot_product_attention, told that it is causal. In bf16 autocast chooses. Needs Debian's python3-torch, on a
GPU a PyTorch for it.
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
import pytorch_model  # noqa: E402


def causal_attention(module, x):
    """What deploy/examples/pytorch_model.py's Attention computes, by the kernels that a mask would keep away."""
    rows, places, units = x.shape
    heads = torch.nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias)
    query, key, value = heads.view(rows, places, 3, module.num_heads, -1).permute(2, 0, 3, 1, 4)
    y = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, dropout_p=module.dropout if module.training else 0.0, is_causal=module.causal)
    return module.out_proj(y.transpose(1, 2).reshape(rows, places, units))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job")
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="f32", choices=["f32", "tf32", "bf16"])
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    on_gpu = arguments.device != "cpu"
    if arguments.precision != "f32":
        torch.backends.cuda.matmul.allow_tf32 = True
    if on_gpu:
        pytorch_model.Attention.forward = causal_attention
    torch.manual_seed(arguments.seed)
    with open(arguments.job) as file:
        job = json.load(file)
    texts = []
    for part in ("train", "test"):
        with open(os.path.join(arguments.folder, part + ".txt"), encoding="utf-8") as file:
            texts.append(file.read())
    letters = {letter: i for i, letter in enumerate(sorted(set(texts[0])))}
    train, test = (torch.from_numpy(np.array([letters[letter] for letter in text])).to(arguments.device)
                   for text in texts)
    context = job["model"]["input"]["tokens"]["context"]
    keys = job["train"]
    batch, steps = keys["batch_size"], arguments.steps or keys["steps"]
    (_, adamw), = keys["optimizer"].items()
    schedule = keys["schedule"]
    cosine = schedule["decay"]["cosine"]
    net = pytorch_model.module_of(job["model"])
    (_, embedding), = job["model"]["layers"][0].items()
    for name in ("weight", "positions"):
        torch.nn.init.normal_(getattr(net.layers[0], name), std=embedding.get("stddev", 1.0))
    net.to(arguments.device)
    fused = {"fused": True} if on_gpu else {}
    optimizer = torch.optim.AdamW(net.parameters(), lr=adamw["learning_rate"], betas=(0.9, adamw.get("beta2", 0.999)),
                                  weight_decay=adamw.get("weight_decay", 0.01), **fused)

    def rate(examples):
        at = min(1.0, examples / cosine["examples"])
        decay = cosine["floor"] + (1 - cosine["floor"]) * 0.5 * (1 + math.cos(math.pi * at))
        return adamw["learning_rate"] * decay * min(1.0, (examples + batch) / schedule["warmup"])

    def loss_of(x, y, **more):
        with torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.precision == "bf16"):
            scores = net(x).flatten(0, 1)
        return torch.nn.functional.cross_entropy(scores.float(), y.flatten(), **more)

    def now():
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    train_loss = torch.compile(loss_of) if arguments.compile else loss_of
    places = torch.arange(context, device=arguments.device)
    warm = steps // 10 if on_gpu else 0
    begin = now()
    for step in range(steps):
        if step == warm:
            begin = now()
        at = torch.randint(len(train) - context, (batch, 1)).to(arguments.device, non_blocking=True) + places
        x, y = train[at], train[at + 1]
        for group in optimizer.param_groups:
            group["lr"] = rate(step * batch)
        loss = train_loss(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), keys["clip_norm"])
        optimizer.step()
    seconds = (now() - begin) * steps / (steps - warm)
    net.eval()
    rows = (len(test) - 1) // context
    x, y = test[:rows * context].reshape(rows, context), test[1:rows * context + 1].reshape(rows, context)
    total = 0.0
    with torch.enable_grad():  # the fast path of evaluation wants biases
        for i in range(0, rows, 64):
            total += float(loss_of(x[i:i + 64], y[i:i + 64], reduction="sum").detach())
    print(json.dumps({"seconds": seconds, "test_loss": total / (rows * context)}))


if __name__ == "__main__":
    main()
