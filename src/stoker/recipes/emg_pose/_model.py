"""The network: EMG at 2000 Hz to frames of features, over them a head, and its poses back at 2000 Hz.

Every convolution is padded so that frame k is centred on the time steps k·s … k·s + s - 1 of a stride s,
and frames are interpolated linearly back to just those steps: input and output stay aligned whatever
the strides, and context left and right is cut off at the end.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from stoker.recipes.emg_pose._data import Statistics
from stoker.recipes.emg_pose._layout import NUM_CHANNELS, NUM_JOINTS
from stoker.recipes.emg_pose._settings import ModelSettings

_VELOCITY_SCALE = 0.01  # rad a frame for an output of 1


class PoseNet(nn.Module):
    """EMG [B, 16, left + T + right] to angles in rad, [B, 20, T].

    Standardises the EMG itself, by statistics that are part of its state. A new one predicts about the
    mean pose.

    Args:
        settings: sizes.
        padding: context left and right that is cut off the output.
        statistics: of the training sessions; without them for a state that brings its own.
    """

    emg_mean: Tensor
    emg_std: Tensor
    angle_mean: Tensor

    def __init__(
        self, settings: ModelSettings, *, padding: tuple[int, int], statistics: Statistics | None = None
    ) -> None:
        super().__init__()
        found = statistics or Statistics((0.0,) * NUM_CHANNELS, (1.0,) * NUM_CHANNELS, (0.0,) * NUM_JOINTS)
        self.register_buffer("emg_mean", torch.tensor(found.emg_mean)[:, None])
        self.register_buffer("emg_std", torch.tensor(found.emg_std)[:, None])
        self.register_buffer("angle_mean", torch.tensor(found.angle_mean))
        self.padding = padding
        self.stride = math.prod(settings.strides)
        stages: list[nn.Module] = []
        width = NUM_CHANNELS
        for stride, kernel, num_blocks in zip(
            settings.strides, settings.kernels, settings.num_blocks, strict=True
        ):
            stages.append(_Downsample(width, settings.features, kernel, stride))
            stages += [_Block(settings) for _ in range(num_blocks)]
            width = settings.features
        self.encoder = nn.Sequential(*stages)
        self.head: nn.Module = _Recurrent(settings) if settings.head == "lstm" else _Attention(settings)
        size = settings.hidden if settings.head == "lstm" else settings.features
        self.output = _Output(
            size * (1 + (settings.head == "lstm" and settings.bidirectional)),
            settings.output,
            self.angle_mean,
        )

    def forward(self, emg: Tensor) -> Tensor:
        """See the class."""
        left, right = self.padding
        num_steps = emg.shape[-1]
        x = (emg.float() - self.emg_mean) / self.emg_std
        x = functional.pad(x, (0, -num_steps % self.stride))
        frames = self.output(self.head(self.encoder(x).transpose(1, 2))).float()  # [B, frames, 20]
        poses = functional.interpolate(
            frames.transpose(1, 2), scale_factor=float(self.stride), mode="linear", align_corners=False
        )
        return poses[..., left : num_steps - right]


class _Downsample(nn.Module):
    """[B, C, T] to [B, F, T / stride]."""

    def __init__(self, num_inputs: int, num_outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(num_inputs, num_outputs, kernel, stride)
        self.norm = nn.LayerNorm(num_outputs)
        self._pad = ((kernel - stride) // 2, kernel - stride - (kernel - stride) // 2)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv(functional.pad(x, self._pad)))
        return _over_features(self.norm, x)


class _Block(nn.Module):
    """Time-depth separable: a convolution over time that features share, then a layer across them."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self._shape = (settings.features // settings.width, settings.width)
        kernel = settings.block_kernel
        self._pad = ((kernel - 1) // 2, kernel // 2)
        self.conv = nn.Conv2d(self._shape[0], self._shape[0], (1, kernel))
        self.mix = nn.Sequential(
            nn.Linear(settings.features, settings.features),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.features, settings.features),
        )
        self.norms = nn.ModuleList([nn.LayerNorm(settings.features) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        """[B, F, T] to the same."""
        padded = functional.pad(x, self._pad)
        grouped = padded.reshape(len(x), *self._shape, -1)
        x = _over_features(self.norms[0], x + functional.relu(self.conv(grouped)).flatten(1, 2))
        steps = x.transpose(1, 2)
        mixed: Tensor = self.norms[1](steps + self.mix(steps))
        return mixed.transpose(1, 2)


class _Recurrent(nn.Module):
    """[B, frames, F] to [B, frames, hidden], twice that if it looks both ways."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            settings.features,
            settings.hidden,
            settings.num_layers,
            batch_first=True,
            bidirectional=settings.bidirectional,
            dropout=settings.dropout if settings.num_layers > 1 else 0.0,
        )

    def forward(self, frames: Tensor) -> Tensor:
        found: Tensor = self.lstm(frames)[0]
        return found


class _Attention(nn.Module):
    """[B, frames, F] to the same, every frame seeing all."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            settings.features,
            settings.num_heads,
            settings.hidden * 2,
            settings.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, settings.num_layers, enable_nested_tensor=False)

    def forward(self, frames: Tensor) -> Tensor:
        found: Tensor = self.layers(frames + _positions(frames))
        return found


class _Output(nn.Module):
    """[B, frames, size] to poses [B, frames, 20]; begins near the mean pose."""

    def __init__(self, size: int, kind: Literal["position", "velocity"], mean: Tensor) -> None:
        super().__init__()
        self.position = nn.Linear(size, NUM_JOINTS)
        self.velocity = nn.Linear(size, NUM_JOINTS) if kind == "velocity" else None
        with torch.no_grad():
            self.position.weight.mul_(0.1)
            self.position.bias.copy_(mean)

    def forward(self, frames: Tensor) -> Tensor:
        frames = functional.leaky_relu(frames)
        if self.velocity is None:
            positions: Tensor = self.position(frames)
            return positions
        moved = (self.velocity(frames[:, 1:]).float() * _VELOCITY_SCALE).cumsum(1)
        start: Tensor = self.position(frames[:, :1])
        return start.float() + functional.pad(moved, (0, 0, 1, 0))


def _over_features(norm: nn.Module, x: Tensor) -> Tensor:
    normed: Tensor = norm(x.transpose(1, 2))
    return normed.transpose(1, 2)


def _positions(frames: Tensor) -> Tensor:
    """Sines and cosines of a frame's number, [frames, F]."""
    _, num_frames, size = frames.shape
    rates = torch.exp(
        torch.arange(0, size, 2, device=frames.device, dtype=torch.float32) * (-math.log(1e4) / size)
    )
    places = torch.arange(num_frames, device=frames.device, dtype=torch.float32)[:, None] * rates
    return torch.cat([places.sin(), places.cos()], 1).to(frames.dtype)
