"""The network: dilated causal convolutions, over them the hidden states of every step and future quality.

Shapes: inputs [B, T, 12], standardised; states [B, T, 2] in mm; quality [B, 5] in physical units.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from stoker.recipes.printer_tcn._layout import COLUMNS, FEATURES, STATES, TARGETS
from stoker.recipes.printer_tcn._scaler import Scaler
from stoker.recipes.printer_tcn._settings import ModelSettings

# the largest value of each target that has bounds; the smallest is 0
_BOUNDS = {"adhesion_ratio": 1.0, "porosity": 100.0, "quality_score": 1.0}


class ImplicitStateTCN(nn.Module):
    """Tracking errors of both axes at every step, from that step and earlier ones; and quality, later on.

    The scaler of the training layers is part of its state, so that a checkpoint brings it along. A new
    model predicts about the training layers' means.

    Args:
        settings: sizes.
        adaptive: learn a variance for each target and for the states, too.
        scaler: of the training layers; without it for a state that brings its own.
    """

    mean: Tensor
    scale: Tensor
    limits: Tensor

    def __init__(
        self, settings: ModelSettings, *, adaptive: bool = False, scaler: Scaler | None = None
    ) -> None:
        super().__init__()
        found = scaler or Scaler((0.0,) * len(COLUMNS), (1.0,) * len(COLUMNS))
        self.register_buffer("mean", torch.tensor(found.mean, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(found.scale, dtype=torch.float64))
        limits = torch.tensor([_BOUNDS.get(name, 0.0) for name in TARGETS])  # 0: it has none
        self.register_buffer("limits", limits, persistent=False)
        widths = (len(FEATURES), *settings.channels)
        self.blocks = nn.ModuleList(
            _Block(before, after, settings.kernel, dilation, settings.dropout)
            for before, after, dilation in zip(widths, settings.channels, settings.dilations, strict=False)
        )
        width = sum(settings.channels)
        self.states = nn.Linear(width, len(STATES))
        self.attention = nn.Linear(width, 1)
        self.trunk = nn.Sequential(
            nn.Linear(2 * width, settings.hidden),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, settings.hidden),
            nn.ReLU(),
        )
        self.heads = nn.ModuleList(nn.Linear(settings.hidden, 1) for _ in TARGETS)
        self.log_variance = nn.Parameter(torch.zeros(len(TARGETS) + 1)) if adaptive else None

    @property
    def scaler(self) -> Scaler:
        """What inputs must be standardised with."""
        return Scaler(tuple(self.mean.tolist()), tuple(self.scale.tolist()))

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """See the file; "log_variance" [6] too, if it is learned."""
        x = inputs
        found = []
        for block in self.blocks:
            x = block(x)
            found.append(x)
        steps = torch.cat(found, 2)  # [B, T, width]
        weights = torch.softmax(self.attention(steps).float(), 1).to(steps.dtype)
        pooled = torch.cat([(weights * steps).sum(1), steps[:, -1]], 1)
        hidden = self.trunk(pooled)
        quality = torch.cat([head(hidden) for head in self.heads], 1)
        outputs = {
            "states": self._physical(self.states(steps).float(), STATES),
            "quality": _bounded(quality.float(), *self._moments(TARGETS), self.limits),
        }
        if self.log_variance is not None:
            outputs["log_variance"] = self.log_variance
        return outputs

    def _physical(self, values: Tensor, names: tuple[str, ...]) -> Tensor:
        mean, scale = self._moments(names)
        return values * scale + mean

    def _moments(self, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        first = COLUMNS.index(names[0])
        part = slice(first, first + len(names))
        return self.mean[part].float(), self.scale[part].float()


class _Block(nn.Module):
    """[B, T, C] to [B, T, C']; a step depends on itself and on earlier ones.

    Features are last throughout: norms and heads need them there, and convolutions take them so, as pictures
    of one row whose memory lies pixel by pixel. Nothing is turned around and back.
    """

    def __init__(self, num_inputs: int, num_outputs: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self._pad = (0, 0, (kernel - 1) * dilation, 0)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(size, num_outputs, (1, kernel), dilation=(1, dilation))
            for size in (num_inputs, num_outputs)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(num_outputs) for _ in range(2))
        self.dropout = nn.Dropout(dropout)
        self.skip = nn.Linear(num_inputs, num_outputs) if num_inputs != num_outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            row = functional.pad(y, self._pad).transpose(1, 2).unsqueeze(2)  # [B, C, 1, T]
            y = convolution(row).squeeze(2).transpose(1, 2)
            y = self.dropout(functional.relu(norm(y)))
        added: Tensor = y + self.skip(x)
        return added


def _bounded(values: Tensor, mean: Tensor, scale: Tensor, limits: Tensor) -> Tensor:
    """Standardised values [B, 5] in physical units; those with bounds never leave them.

    A bounded one is limit · sigmoid(logit(p) + z s / (limit p (1 - p))), p = mean / limit: near the mean it
    has the slope of the plain mean + s z.
    """
    has_bounds = limits > 0
    limits = torch.where(has_bounds, limits, torch.ones_like(limits))
    share = (mean / limits).clamp(0.01, 0.99)
    slope = scale / (limits * share * (1 - share))
    bounded = limits * torch.sigmoid(torch.logit(share) + values * slope)
    return torch.where(has_bounds, bounded, mean + scale * values)
