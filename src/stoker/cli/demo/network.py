"""The network that both scripts train, and the accelerator that they train it on.

Where there is no GPU, one is EMULATED: the small network below really learns, and beside that each of its
passes waits, with the cores free, as long as a larger network's would take on an accelerator.
"""

import time

import torch
from torch import nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FORWARD_S, BACKWARD_S = 0.004, 0.008  # of a batch, on the emulated accelerator


class Accelerator(torch.autograd.Function):
    """Passes a batch through and takes its time, forward and backward."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(BACKWARD_S)
        return gradient


class Network(nn.Module):
    """Signals [B, 1, T] to scores [B, 3]: how loud each of sixteen filters' answers is."""

    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(1, 16, 65, stride=8)
        self.head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x):
        loudness = self.filters(x).abs()
        scores = self.head(torch.cat([loudness.mean(-1), loudness.std(-1)], 1))
        return Accelerator.apply(scores) if DEVICE.type == "cpu" else scores


def make_network():
    if DEVICE.type == "cpu":
        torch.set_num_threads(1)  # the accelerator computes, not the cores
    torch.manual_seed(0)
    return Network().to(DEVICE)
