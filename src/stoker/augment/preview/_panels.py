"""Drawing one field of one sample: a signal, an image or a volume, with its mask.

Sizes are in inches, from the lower left corner of the figure. `add` makes axes of such a box.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stoker.augment._transform import Role
from stoker.augment.preview._masks import coloured
from stoker.augment.preview._scales import Scale

Axes = Any  # matplotlib's
DYNAMIC_RANGE_DB = 70  # of a spectrogram, below its loudest place

_MOST_CHANNELS = 8
_MOST_POINTS = 4000  # of a trace; longer ones are drawn as the range of each stretch
_SMALL = 6  # points, of axis labels
_TRACE, _BAND, _SPECTROGRAM, _TICKS, _GAP = 1.0, 0.13, 0.85, 0.3, 0.06
_WIDTHS: dict[Role, float] = {"signal": 3.3, "image": 2.7, "volume": 4.2}


class Box(NamedTuple):
    """A place in the figure."""

    left: float
    bottom: float
    width: float
    height: float


class Shown(NamedTuple):
    """One field of one sample.

    Attributes:
        x: [C, T], [C, H, W] or [C, D, H, W], on the CPU.
        mask: without channels, or those of a signal [C, T]; None if there is none.
        scale: values at the bottom and the top of a trace, or black and white.
        loudest: the top of a spectrogram's scale, in dB.
        labelled: whether its axes' numbers are written.
    """

    x: Tensor
    mask: Tensor | None
    scale: Scale
    loudest: float
    labelled: bool


class Style(NamedTuple):
    """What all panels share."""

    add: Callable[[Box], Axes]
    ignored: set[int]
    sample_rate: float | None


def panel_width(role: Role) -> float:
    """How wide a field of this role is drawn."""
    return _WIDTHS[role]


def panel_height(role: Role, x: Tensor, *, masked: bool) -> float:
    """How high a field [C, ...] of this role is drawn in its width."""
    if role == "signal":
        band = _BAND + _GAP if masked else 0.0
        return _trace_height(x) + band + _GAP + _SPECTROGRAM + _TICKS
    if role == "image":
        return _image_height(x) + _GAP
    return max(high for _, high in _slice_sizes(x)) + _GAP


def draw_panel(role: Role, shown: Shown, box: Box, style: Style) -> None:
    """Draw the field into the box, from its upper left corner."""
    {"signal": _draw_signal, "image": _draw_image, "volume": _draw_volume}[role](shown, box, style)


def spectrogram(x: Tensor) -> Tensor:
    """Power in dB of a signal [C, T], the mean over its channels: [frequencies, times]."""
    x = x.to(torch.float32)
    length = x.shape[-1]
    size = min(512, 2 ** round(math.log2(math.sqrt(8 * length) + 8)))
    if length < size:
        x = torch.nn.functional.pad(x, (0, size - length))
    spectrum = torch.stft(
        x,
        size,
        hop_length=max(size // 8, length // 300, 1),
        window=torch.hann_window(size),
        pad_mode="constant",
        return_complex=True,
    )
    power = spectrum.abs().square().mean(0) / size
    return 10 * torch.log10(power.nan_to_num(0.0, 0.0, 0.0) + 1e-20)


def _draw_signal(shown: Shown, box: Box, style: Style) -> None:
    top = box.bottom + box.height
    height = _trace_height(shown.x)
    rate = style.sample_rate or 1.0
    seconds = shown.x.shape[-1] / rate
    trace = style.add(Box(box.left, top - height, box.width, height))
    _draw_traces(trace, shown, seconds)
    bottom = top - height
    if shown.mask is not None:
        bottom -= _BAND + _GAP / 2
        band = style.add(Box(box.left, bottom, box.width, _BAND))
        rows = shown.mask.reshape(-1, shown.mask.shape[-1])
        band.imshow(
            coloured(rows, style.ignored, opaque=True),
            extent=(0, seconds, 0, 1),
            aspect="auto",
            interpolation="nearest",
        )
        band.set_facecolor("0.85")
        band.set(xticks=[], yticks=[])
    bottom -= _SPECTROGRAM + _GAP
    axes = style.add(Box(box.left, bottom, box.width, _SPECTROGRAM))
    axes.imshow(
        spectrogram(shown.x).numpy(),
        origin="lower",
        aspect="auto",
        extent=(0, seconds, 0, rate / 2),
        cmap="magma",
        vmin=shown.loudest - DYNAMIC_RANGE_DB,
        vmax=shown.loudest,
    )
    axes.set_xlabel("samples" if style.sample_rate is None else "s", size=_SMALL, labelpad=1)
    axes.set_ylabel("1/sample" if style.sample_rate is None else "Hz", size=_SMALL, labelpad=1)
    _label(axes, shown.labelled)
    axes.tick_params(labelbottom=True)


def _draw_traces(axes: Axes, shown: Shown, seconds: float) -> None:
    low, high = shown.scale
    span = (high - low) or 1.0
    num_channels = min(_MOST_CHANNELS, shown.x.shape[0])
    for channel in range(num_channels):
        time, values = _outline(shown.x[channel].to(torch.float32))
        axes.plot(
            (time * (seconds / max(1, shown.x.shape[-1]))).numpy(),
            (values - channel * span).numpy(),
            linewidth=0.5,
            color=f"C{channel}",
        )
    axes.set_xlim(0, seconds)
    axes.set_ylim(low - (num_channels - 1) * span - 0.05 * span, high + 0.05 * span)
    if shown.x.shape[0] > num_channels:
        note = f"{num_channels} of {shown.x.shape[0]} channels"
        axes.text(0.99, 0.97, note, size=_SMALL, ha="right", va="top", transform=axes.transAxes)
    if num_channels > 1:
        axes.set_yticks([-channel * span for channel in range(num_channels)], range(num_channels))
        axes.set_ylabel("channel", size=_SMALL, labelpad=1)
    else:
        axes.locator_params(axis="y", nbins=4, prune="lower")  # below it stands another number
    axes.grid(visible=True, axis="x", linewidth=0.3, color="0.85")
    _label(axes, shown.labelled)
    axes.tick_params(labelbottom=False)


def _draw_image(shown: Shown, box: Box, style: Style) -> None:
    height = _image_height(shown.x)
    width = min(box.width, height * shown.x.shape[-1] / shown.x.shape[-2])
    axes = style.add(Box(box.left, box.bottom + box.height - height, width, height))
    x = shown.x if shown.x.shape[0] == 3 else shown.x[:1]
    low, high = shown.scale
    picture = ((x.to(torch.float32) - low) / ((high - low) or 1.0)).nan_to_num(0.0).clamp(0, 1)
    picture = picture.permute(1, 2, 0) if len(x) == 3 else picture[0]
    _draw_picture(axes, picture, shown.mask, style.ignored)


def _draw_volume(shown: Shown, box: Box, style: Style) -> None:
    volume = shown.x[0].to(torch.float32)
    low, high = shown.scale
    volume = ((volume - low) / ((high - low) or 1.0)).nan_to_num(0.0).clamp(0, 1)
    left = box.left
    for axis, (width, height) in enumerate(_slice_sizes(shown.x)):
        axes = style.add(Box(left, box.bottom + box.height - height, width, height))
        mask = None if shown.mask is None else _middle(shown.mask, axis)
        _draw_picture(axes, _middle(volume, axis), mask, style.ignored)
        left += width + _GAP


def _draw_picture(axes: Axes, picture: Tensor, mask: Tensor | None, ignored: set[int]) -> None:
    axes.imshow(picture.numpy(), cmap="gray", vmin=0, vmax=1, aspect="auto")
    if mask is not None:
        axes.imshow(coloured(mask, ignored), interpolation="nearest", aspect="auto")
    axes.set(xticks=[], yticks=[])


def _label(axes: Axes, labelled: bool) -> None:  # noqa: FBT001 - a fact, not an option
    axes.tick_params(labelsize=_SMALL, length=2, pad=1, width=0.5)
    axes.locator_params(axis="x", nbins=6)
    if not labelled:
        axes.tick_params(labelleft=False)
        axes.set_ylabel("")
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)


def _trace_height(x: Tensor) -> float:
    return _TRACE + 0.14 * (min(_MOST_CHANNELS, x.shape[0]) - 1)


def _image_height(x: Tensor) -> float:
    return min(_WIDTHS["image"] * x.shape[-2] / max(1, x.shape[-1]), 1.5 * _WIDTHS["image"])


def _slice_sizes(x: Tensor) -> list[tuple[float, float]]:
    """Width and height of the three middle slices, all to one scale."""
    depth, height, width = x.shape[-3:]
    sizes = [(width, height), (width, depth), (height, depth)]
    unit = min(
        (_WIDTHS["volume"] - 2 * _GAP) / max(1, sum(wide for wide, _ in sizes)),
        1.5 / max(1, height, depth),
    )
    return [(wide * unit, high * unit) for wide, high in sizes]


def _middle(volume: Tensor, axis: int) -> Tensor:
    return volume.select(axis, volume.shape[axis] // 2)


def _outline(x: Tensor) -> tuple[Tensor, Tensor]:
    """Places and values to draw a trace through; least and greatest of each stretch if it is long."""
    length = x.shape[0]
    if length <= _MOST_POINTS:
        return torch.arange(length), x
    step = -(-length // (_MOST_POINTS // 2))
    whole = length // step * step
    stretches = x[:whole].view(-1, step)
    values = torch.stack([stretches.amin(1), stretches.amax(1)], 1).flatten()
    return torch.arange(len(values)) * (step / 2), values
