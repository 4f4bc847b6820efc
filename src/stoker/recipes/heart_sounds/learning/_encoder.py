"""The encoder: convolutions that halve time four times, state-space layers, the mean over time.

    x [B, 1, T] ─ conv 7 ─ conv 5 ─ conv 5 ──┬── conv 3 ─ n state-space ─ mean ─▶ [B, 8 width]
                  T/2      T/4      T/8      └─▶ maps [B, 4 width, T/8], of which parts are pooled

A state-space layer is a linear recurrence with a diagonal matrix A, h' = A h + B x, y = Re(C h). Being
linear, it is a convolution with the kernel K[t] = 2 Re Σ_n C_n B̄_n exp(Δ A_n t), and a convolution over
the whole length is a product of spectra: no step waits for the one before it. One kernel looks back,
one ahead.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

MAPS_STRIDE = 8  # points of the signal to a step of the maps
_KERNELS = (7, 5, 5, 3)


class Encoded(NamedTuple):
    """What the encoder gives."""

    features: Tensor  # [B, num_features]
    maps: Tensor  # [B, num_maps, T / 8], of the third convolution


class Encoder(nn.Module):
    """Features of a cycle; the sizes are the settings'.

    Args:
        width: channels of the first convolution; the four have 1, 2, 4 and 8 times as many.
        num_blocks: state-space layers.
        state_size: of the recurrence, for each channel and direction.
        dropout: behind each state-space layer.
    """

    def __init__(
        self, *, width: int = 16, num_blocks: int = 2, state_size: int = 16, dropout: float = 0.1
    ) -> None:
        super().__init__()
        channels = [1, *(width * factor for factor in (1, 2, 4, 8))]
        stages = [
            nn.Sequential(
                nn.Conv1d(channels[i], channels[i + 1], size, stride=2, padding=size // 2, bias=False),
                nn.BatchNorm1d(channels[i + 1]),
                nn.GELU(),
            )
            for i, size in enumerate(_KERNELS)
        ]
        self.front = nn.Sequential(*stages[:3])
        self.last = stages[3]
        self.num_maps, self.num_features = channels[3], channels[4]
        self.blocks = nn.Sequential(
            *(StateSpaceBlock(self.num_features, state_size, dropout) for _ in range(num_blocks))
        )
        self.norm = nn.LayerNorm(self.num_features)

    def forward(self, x: Tensor) -> Encoded:
        """x: [B, 1, T], T of at least 16."""
        maps = self.front(x)
        steps = self.blocks(self.last(maps).transpose(1, 2))  # [B, T / 16, num_features]
        return Encoded(self.norm(steps).mean(dim=1), maps)


class StateSpaceBlock(nn.Module):
    """A gated state-space layer in both directions, with its input added: [B, L, D] to [B, L, D]."""

    def __init__(self, num_features: int, state_size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(num_features)
        self.widen = nn.Linear(num_features, 2 * num_features)
        self.recurrence = DiagonalRecurrence(num_features, state_size)
        self.narrow = nn.Linear(num_features, num_features)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        signal, gate = self.widen(self.norm(x)).chunk(2, dim=-1)
        mixed: Tensor = self.recurrence(F.silu(signal))
        out: Tensor = x + self.dropout(self.narrow(mixed * F.silu(gate)))
        return out


class DiagonalRecurrence(nn.Module):
    """The recurrence of each channel by itself, as a convolution: [B, L, D] to [B, L, D] in float32.

    A begins as -1/2 + i π n, a basis of decaying sines; Δ, the step in time, between 1/1000 and 1/10,
    so that channels remember for different times.
    """

    def __init__(self, num_features: int, state_size: int) -> None:
        super().__init__()
        shape = (2, num_features, state_size)  # back and ahead
        low, high = math.log(1e-3), math.log(1e-1)
        self.log_step = nn.Parameter(torch.rand(2, num_features, 1) * (high - low) + low)
        self.log_decay = nn.Parameter(torch.full(shape, math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(state_size).float().expand(shape).clone())
        self.out = nn.Parameter(torch.randn(*shape, 2) * math.sqrt(0.5))
        self.skip = nn.Parameter(torch.ones(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        with torch.autocast(x.device.type, enabled=False):  # spectra of half precision are none
            signal = x.float().transpose(1, 2)  # [B, D, L]
            length = signal.shape[-1]
            size = 2 * length  # zeros behind: the product of spectra must not wrap round
            back, ahead = self.kernels(length)
            both = F.pad(back, (0, length)) + F.pad(ahead.flip(-1), (length, 0)).roll(1, -1)
            spectrum = torch.fft.rfft(signal, size) * torch.fft.rfft(both)
            mixed = torch.fft.irfft(spectrum, size)[..., :length]
            result: Tensor = (mixed + signal * self.skip[:, None]).transpose(1, 2)
            return result

    def kernels(self, length: int) -> tuple[Tensor, Tensor]:
        """K [D, length] of both directions, by lag."""
        step = self.log_step.exp()
        matrix = torch.complex(-self.log_decay.exp(), self.frequency)  # A: [2, D, N]
        scaled = matrix * step
        held = torch.view_as_complex(self.out) * (scaled.exp() - 1) / matrix  # C · B̄, input held for a step
        powers = (scaled[..., None] * torch.arange(length, device=step.device)).exp()
        back, ahead = 2 * torch.einsum("kdn,kdnl->kdl", held, powers).real
        return back, ahead
