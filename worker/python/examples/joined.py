"""Trains a small network on handwritten digits. The first argument is the folder that they are in."""
import gzip
import sys

import numpy as np
import torch
from torch import nn
import tessera


def read(name, header):
    with gzip.open("%s/%s-idx%d-ubyte.gz" % (sys.argv[1], name, header // 4 - 1)) as file:
        return torch.from_numpy(np.frombuffer(file.read(), np.uint8, offset=header).copy())


def digits(part):
    labels = read(part + "-labels", 8).long()
    return read(part + "-images", 16).reshape(len(labels), -1).float() / 16, labels


def evaluate(model):
    model.eval()
    with torch.no_grad():
        x, y = digits("test")
        scores = {"score": float((model(x).argmax(1) == y).float().mean()), "loss": float(criterion(model(x), y)),
                  "rows": len(y)}
    model.train()
    return scores


data = torch.utils.data.TensorDataset(*digits("train"))
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
if len(sys.argv) > 2:
    sys.exit(tessera.torch.save_initial(model, sys.argv[2]))
trainer = tessera.torch.attach(tessera.join(), model, optimizer)
while trainer.running:
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        if not trainer.step(examples=len(x), loss=loss):
            break
        if trainer.evaluates:
            trainer.report(**evaluate(model))
print(evaluate(model))
trainer.close()
