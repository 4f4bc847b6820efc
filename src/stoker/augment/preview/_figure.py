"""The grid: a row for each sample, the original first, its views beside it, under each what was drawn."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stoker.augment._draws import Draws
from stoker.augment._pipeline import Pipeline
from stoker.augment._stages import check_fields
from stoker.augment._transform import Role
from stoker.augment.preview._masks import class_colour, classes_in, ignored_values
from stoker.augment.preview._panels import (
    Box,
    Shown,
    Style,
    draw_panel,
    panel_height,
    panel_width,
    spectrogram,
)
from stoker.augment.preview._scales import common_scales, image_scales, value_range
from stoker.augment.preview._words import added_words, drawn_words, label_words, wrapped
from stoker.errors import MissingExtraError, UsageError

Batch = Mapping[str, Any]

_DIMS: dict[Role, int] = {"signal": 1, "image": 2, "volume": 3}
_DPI = 110
_BEYOND = 0.002  # share of a picture's values that may be blacker than black, and whiter than white
_TEXT, _LINE, _LETTER = 7.0, 0.127, 0.0637  # points; inches of a line, of a letter as it is hinted
_LEFT, _BETWEEN, _HEAD, _NAME, _FOOT = 0.5, 0.22, 0.45, 0.22, 0.3
_TITLE_LETTER = 0.085  # inches, of its widest letters but few
_MOST_CLASSES = 30  # in the legend
_CLASSES_A_LINE = 10


class _Cell(NamedTuple):
    """One sample once: the original, or one of its views."""

    fields: dict[str, Shown]
    lines: list[str]


def preview(
    pipeline: Pipeline,
    batch: Batch,
    *,
    index: Sequence[int] | None = None,
    epoch: int = 0,
    num_views: int = 3,
    names: Sequence[str] | None = None,
    sample_rate: float | None = None,
    title: str = "",
) -> Any:
    """Draw samples and what the pipeline makes of them, with the parameters drawn for each.

    Signals are drawn as traces and spectrograms, images as they are, volumes as the middle slices
    across each axis; masks lie over them, the ignored part as a chequer. The views are those of
    `Pipeline.views`: the first is what a plain call gives in that epoch.

    Args:
        pipeline: in any mode.
        batch: as for a call of the pipeline.
        index: numbers of the samples; by default the batch's own field "index", or 0, 1, …
        epoch: whose parameters are drawn.
        num_views: of each sample.
        names: of the samples; by default their numbers.
        sample_rate: of signals in Hz, for the axes; by default that of the pipeline's transforms.
        title: written above.

    Returns:
        A `matplotlib.figure.Figure`; ``savefig`` writes it.

    Raises:
        MissingExtraError: matplotlib is not installed.
        UsageError: a field is missing or not of the layout of its role, or none can be drawn.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("drawing a preview", extra="plot", library="matplotlib")
    roles = {name: role for name, role in pipeline.roles.items() if role in _DIMS}
    if not roles:
        raise UsageError(
            f"a preview shows signals, images and volumes, got roles={pipeline.roles}; "
            f"give one of these roles to a field"
        )
    if num_views < 1:
        raise UsageError(f"num_views must be at least 1, got {num_views}")
    numbers = _numbers(batch, index, next(iter(roles)))
    check_fields(batch, pipeline.roles, len(numbers))
    names = [f"sample {number}" for number in numbers] if names is None else list(names)
    draws = [pipeline.draw(numbers, epoch, view=view) for view in range(num_views)]
    views = [_on_cpu(pipeline.replay(batch, _beside(batch, each))) for each in draws]
    rows = [_cells(pipeline, roles, _on_cpu(batch), views, draws, row, names) for row in range(len(numbers))]
    masks = [shown.mask for row in rows for cell in row for shown in cell.fields.values()]
    return _drawn(
        rows,
        roles,
        names=[_headline(name, pipeline, batch, row) for row, name in enumerate(names)],
        title=", ".join(part for part in (title, f"seed {pipeline.seed}", f"epoch {epoch}") if part),
        classes=classes_in([mask for mask in masks if mask is not None]),
        ignored=ignored_values(pipeline),
        sample_rate=_sample_rate(pipeline) if sample_rate is None else sample_rate,
    )


def _cells(
    pipeline: Pipeline,
    roles: Mapping[str, Role],
    batch: Batch,
    views: Sequence[Batch],
    draws: Sequence[Draws],
    row: int,
    names: Sequence[str],
) -> list[_Cell]:
    """The original and the views of one sample."""
    labels = [name for name, role in pipeline.roles.items() if role == "label"]
    lines = [[f"{name}: {_described(batch[name], role)}" for name, role in roles.items()]]
    for view, drawn in zip(views, draws, strict=True):
        lines.append(drawn_words(pipeline, drawn, row, names) + added_words(batch, view, labels, row))
    fields: list[dict[str, Shown]] = [{} for _ in range(1 + len(views))]
    for name, role in roles.items():
        shown = [_values(each[name], row) for each in (batch, *views)]
        ranges = [value_range(x, beyond=0.0 if role == "signal" else _BEYOND) for x in shown]
        scales = (image_scales if role == "image" else common_scales)(ranges[0], ranges[1:])
        loudest = [float(spectrogram(x).max()) if role == "signal" else 0.0 for x in shown]
        for column, (each, x, scale) in enumerate(zip((batch, *views), shown, scales, strict=True)):
            one_scale = scale == scales[0]
            fields[column][name] = Shown(
                x=x,
                mask=_mask_of(pipeline.roles, each, x, role, row),
                scale=scale,
                loudest=max(loudest[1:] + ([loudest[0]] if one_scale else [])) if column else loudest[0],
                labelled=column == 0 or not one_scale,
            )
            if role != "signal" and scale != (0.0, 1.0) and (column == 0 or not one_scale):
                lines[column].append(f"{name}: black is {scale[0]:.3g}, white {scale[1]:.3g}")
    return [_Cell(*pair) for pair in zip(fields, lines, strict=True)]


def _drawn(
    rows: Sequence[Sequence[_Cell]],
    roles: Mapping[str, Role],
    *,
    names: Sequence[str],
    title: str,
    classes: Sequence[int],
    ignored: set[int],
    sample_rate: float | None,
) -> Any:
    """The figure of all cells, laid out in inches from its top."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = max(panel_width(role) for role in roles.values())
    gap = _BETWEEN + (0.3 if "signal" in roles.values() else 0.0)
    columns = len(rows[0])
    panels = [
        {
            name: max(
                panel_height(role, cell.fields[name].x, masked=cell.fields[name].mask is not None)
                for cell in row
            )
            for name, role in roles.items()
        }
        for row in rows
    ]
    texts = [[wrapped(cell.lines, int(width / _LETTER)) for cell in row] for row in rows]
    heights = [
        _NAME + sum(panels[i].values()) + _LINE * max(map(len, texts[i])) + _BETWEEN for i in range(len(rows))
    ]
    shown_classes = [number for number in classes if number not in ignored][:_MOST_CLASSES]
    has_legend = bool(classes)
    legend_height = _FOOT * -(-(len(shown_classes) + 1) // _CLASSES_A_LINE) if has_legend else 0.0
    size = (_LEFT + columns * (width + gap), _HEAD + sum(heights) + legend_height)
    figure = Figure(figsize=size, dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)

    def add(box: Box) -> Any:
        return figure.add_axes(
            (box.left / size[0], box.bottom / size[1], box.width / size[0], box.height / size[1])
        )

    def write(left: float, bottom: float, text: str, **options: Any) -> None:
        figure.text(left / size[0], bottom / size[1], text, va="top", parse_math=False, **options)

    style = Style(add, ignored, sample_rate)
    num_letters = int((size[0] - 2 * _LEFT) / _TITLE_LETTER)
    title = title if len(title) <= num_letters else f"{title[: num_letters - 1]}…"
    write(_LEFT, size[1] - 0.08, title, size=8, color="0.35")
    for column in range(columns):
        heading = "original" if column == 0 else f"view {column - 1}"
        write(_LEFT + column * (width + gap), size[1] - 0.25, heading, size=8, weight="bold")
    top = size[1] - _HEAD
    for row, cells in enumerate(rows):
        write(_LEFT, top, names[row], size=7.5, weight="bold", color="C0")
        for column, cell in enumerate(cells):
            left, upper = _LEFT + column * (width + gap), top - _NAME
            for name, role in roles.items():
                height = panels[row][name]
                draw_panel(role, cell.fields[name], Box(left, upper - height, width, height), style)
                upper -= height
            text = "\n".join(texts[row][column])
            write(left, upper, text, size=_TEXT, family="monospace", linespacing=1.25)
        top -= heights[row]
    if has_legend:
        _add_legend(figure, shown_classes, any(each in ignored for each in classes), _LEFT / size[0])
    return figure


def _add_legend(figure: Any, classes: Sequence[int], ignored: bool, left: float) -> None:  # noqa: FBT001
    from matplotlib.patches import Patch

    handles = [Patch(color=class_colour(number), label=f"class {number}") for number in classes]
    if ignored:
        handles.append(Patch(facecolor="0.85", edgecolor="0.15", hatch="xxxx", label="ignored"))
    figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(left, 0.0),
        borderaxespad=0.2,
        ncols=_CLASSES_A_LINE,
        fontsize=_TEXT,
        frameon=False,
    )


def _headline(name: str, pipeline: Pipeline, batch: Batch, row: int) -> str:
    labels = [
        f"{field} = {label_words(batch[field][row])}"
        for field, role in pipeline.roles.items()
        if role == "label"
    ]
    return ", ".join([name, *labels])


def _mask_of(roles: Mapping[str, Role], batch: Batch, x: Tensor, role: Role, row: int) -> Tensor | None:
    """The first mask that has the field's size, without channels unless it is a signal's."""
    size = x.shape[-_DIMS[role] :]
    for name, other in roles.items():
        if other != "mask":
            continue
        mask: Tensor = batch[name][row]
        if mask.shape[-_DIMS[role] :] == size and mask.ndim - _DIMS[role] in {0, 1}:
            return mask if role == "signal" or mask.ndim == _DIMS[role] else mask[0]
    return None


def _values(field: Tensor, row: int) -> Tensor:
    """A sample's field to be shown; bytes from 0 to 1, as the transforms make them."""
    x = field[row].detach()
    return x / 255 if x.dtype == torch.uint8 else x


def _described(field: Tensor, role: Role) -> str:
    shown_whole = role == "signal" or field.shape[1] == 1 or (role == "image" and field.shape[1] == 3)
    part = "" if shown_whole else ", its channel 0"
    return f"{str(field.dtype).removeprefix('torch.')} {list(field.shape[1:])}{part}"


def _numbers(batch: Batch, index: Sequence[int] | None, field: str) -> list[int]:
    if index is None:
        index = batch.get("index")
    if index is None:
        return list(range(len(batch[field]) if isinstance(batch.get(field), Tensor) else 0))
    return [int(number) for number in index]


def _sample_rate(pipeline: Pipeline) -> float | None:
    rates = [getattr(transform, "sample_rate", None) for transform in pipeline.transforms]
    return next((float(rate) for rate in rates if isinstance(rate, int | float)), None)


def _beside(batch: Batch, draws: Draws) -> Draws:
    """The draws on the batch's device."""
    tensors = [value for value in batch.values() if isinstance(value, Tensor)]
    return draws.to(tensors[0].device) if tensors else draws


def _on_cpu(batch: Batch) -> dict[str, Any]:
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in batch.items()}
