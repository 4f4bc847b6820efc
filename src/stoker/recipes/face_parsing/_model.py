"""The network: patches, attention within four ever coarser stages, one light decoder for all of them.

    image [B, 3, H, W] ─▶ stage 1 [B, C₁, H/s, W/s] ─▶ 2 ─▶ 3 ─▶ 4, each half as fine as the one before
                              └────────┴──── all brought to stage 1's size, joined ─▶ 19 logits, [B, 19, H, W]

A patch overlaps its neighbours, but for the last stage, and has its centre where the enlarged logits expect
it: kernels are even, as strides are, for an odd one would move each stage by half a patch of the one before.
Attention of N patches would cost N², so keys and values are made of patches joined r x r: N²/r². A depthwise
convolution within each block says where a patch is; there are no position embeddings, so any size of image
will do. Normalisation looks at one sample only: ranks and batch sizes learn the same.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from stoker.errors import UsageError
from stoker.recipes.face_parsing._classes import NUM_CLASSES
from stoker.recipes.face_parsing._settings import ModelSettings


class FaceParser(nn.Module):
    """Images to the logits of 19 classes a pixel.

    Shape: [B, 3, H, W] as bytes, or as floats from 0 to 1, to [B, 19, H, W].

    Raises:
        UsageError: it would have more parameters than `settings.max_parameters`.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        widths = settings.widths
        patches = [_Patches(3, widths[0], kernel=2 * settings.stride, stride=settings.stride)]
        for number, (before, width) in enumerate(pairwise(widths), 1):
            last = number == len(widths) - 1  # where an overlap would take most parameters
            patches.append(_Patches(before, width, kernel=2 if last else 4, stride=2))
        self._multiple = settings.stride * 8  # pixels: an edge of the last stage's patches
        self.stages = nn.ModuleList()
        for number, patch in enumerate(patches):
            blocks = [
                _Block(
                    widths[number],
                    num_heads=settings.num_heads,
                    reduction=settings.reductions[number],
                    mlp_ratio=settings.mlp_ratio,
                    dropout=settings.dropout * (0.5 + 0.25 * number),
                )
                for _ in range(settings.depths[number])
            ]
            self.stages.append(nn.Sequential(patch, *blocks, _ChannelNorm(widths[number])))
        self.decoder = _Decoder(widths, settings.decoder, local=settings.local, dropout=settings.dropout)
        self.head = nn.Conv2d(settings.decoder, NUM_CLASSES, 1)
        count = num_parameters(self)
        if count > settings.max_parameters:
            raise UsageError(
                f"the model must have at most {settings.max_parameters} parameters, these settings give "
                f"{count}; lower model.widths or model.depths, or raise model.max_parameters"
            )

    def forward(self, image: Tensor) -> Tensor:
        """See the class."""
        x = image if image.is_floating_point() else image.float() / 255
        height, width = x.shape[-2:]
        x = functional.pad(x, (0, -width % self._multiple, 0, -height % self._multiple))
        size = x.shape[-2:]
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        logits = self.head(self.decoder(found))
        logits = functional.interpolate(logits, size, mode="bilinear", align_corners=False)
        return logits[..., :height, :width]


def num_parameters(model: nn.Module) -> int:
    """How many numbers there are to learn."""
    return sum(weight.numel() for weight in model.parameters())


class _ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of [B, C, H, W]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _Patches(nn.Sequential):
    """[B, C, H, W] to [B, width, H / stride, W / stride]."""

    def __init__(self, num_inputs: int, width: int, *, kernel: int, stride: int) -> None:
        super().__init__(
            nn.Conv2d(num_inputs, width, kernel, stride, padding=(kernel - stride) // 2), _ChannelNorm(width)
        )


class _Block(nn.Module):
    """Attention, then two layers with a depthwise convolution between; [B, C, H, W] to the same."""

    def __init__(self, width: int, *, num_heads: int, reduction: int, mlp_ratio: int, dropout: float) -> None:
        super().__init__()
        hidden = width * mlp_ratio
        self.norms = nn.ModuleList([_ChannelNorm(width) for _ in range(2)])
        self.attention = _Attention(width, num_heads, reduction)
        self.expand = nn.Conv2d(width, hidden, 1)
        self.position = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.reduce = nn.Conv2d(hidden, width, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norms[0](x)))
        inner = functional.gelu(self.position(self.expand(self.norms[1](x))))
        mixed: Tensor = x + self.dropout(self.reduce(inner))
        return mixed


class _Attention(nn.Module):
    """Every patch looks at all others, joined `reduction` x `reduction`."""

    def __init__(self, width: int, num_heads: int, reduction: int) -> None:
        super().__init__()
        self._num_heads = num_heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.join = (
            nn.Sequential(nn.Conv2d(width, width, reduction, reduction), _ChannelNorm(width))
            if reduction > 1
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        query = self._heads(self.query(_as_tokens(x)))
        key, value = map(self._heads, self.key_value(_as_tokens(self.join(x))).chunk(2, -1))
        seen = functional.scaled_dot_product_attention(query, key, value)  # [B, heads, N, C / heads]
        tokens: Tensor = self.output(seen.transpose(1, 2).flatten(2))
        return tokens.transpose(1, 2).reshape(*x.shape)

    def _heads(self, tokens: Tensor) -> Tensor:
        """[B, N, C] to [B, heads, N, C / heads]."""
        return tokens.reshape(*tokens.shape[:2], self._num_heads, -1).transpose(1, 2)


class _Decoder(nn.Module):
    """All stages added up, from the coarsest on, each enlarged to the next: [B, width, H / s, W / s].

    A layer over all enlarged stages would make the same of them, up to how they are enlarged, of many times
    as many patches.
    """

    def __init__(self, widths: tuple[int, ...], width: int, *, local: bool, dropout: float) -> None:
        super().__init__()
        self.project = nn.ModuleList([nn.Conv2d(each, width, 1) for each in widths])
        self.norm = nn.GroupNorm(4, width)
        self.local = _Local(width) if local else nn.Identity()
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, stages: list[Tensor]) -> Tensor:
        total: Tensor = self.project[-1](stages[-1])
        for project, x in zip(reversed(self.project[:-1]), reversed(stages[:-1]), strict=True):
            total = functional.interpolate(total, x.shape[-2:], mode="bilinear", align_corners=False)
            total = total + project(x)
        refined: Tensor = self.dropout(self.local(functional.relu(self.norm(total))))
        return refined


class _Local(nn.Module):
    """What attention is bad at, edges: a separable convolution, its channels gated, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        self.pointwise = nn.Conv2d(width, width, 1, bias=False)
        self.norm = nn.GroupNorm(4, width)
        self.gate = nn.Sequential(
            nn.Linear(width, width // 4, bias=False),
            nn.ReLU(),
            nn.Linear(width // 4, width, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        near = functional.relu(self.norm(self.pointwise(self.depthwise(x))))
        gated: Tensor = near * self.gate(near.mean((2, 3)))[..., None, None]
        return x + gated


def _as_tokens(x: Tensor) -> Tensor:
    """[B, C, H, W] to [B, H · W, C]."""
    return x.flatten(2).transpose(1, 2)
