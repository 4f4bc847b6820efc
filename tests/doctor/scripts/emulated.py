"""A model whose passes take a known time: it sleeps, as a host does while its accelerator computes.

With EMULATED_LOG it writes down how long it slept: on a busy machine, longer than it meant to.
"""

import os
import time

import torch
from torch import nn

torch.set_num_threads(1)  # the accelerator computes, not the cores
log = open(os.environ.get("EMULATED_LOG", os.devnull), "a", buffering=1)


def compute(stage, seconds):
    begin = time.perf_counter()
    time.sleep(seconds)
    log.write(f"{stage} {seconds} {time.perf_counter() - begin}\n")


class Computing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forward_s, backward_s):
        ctx.backward_s = backward_s
        compute("forward", forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        compute("backward", ctx.backward_s)
        return gradient, None, None


class EmulatedNet(nn.Module):
    """Classifies by the first numbers of a sample, in forward_s and backward_s seconds a batch."""

    def __init__(self, forward_s, backward_s, features=16, classes=4):
        super().__init__()
        self.forward_s, self.backward_s, self.features = forward_s, backward_s, features
        self.head = nn.Linear(features, classes)

    def forward(self, x):
        x = self.head(x.flatten(1)[:, : self.features])
        return Computing.apply(x, self.forward_s, self.backward_s)
