"""What the settings of all recipes share, and the trainer that they describe."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from stoker.config import Settings

if TYPE_CHECKING:
    from torch import nn

    from stoker.train import Task, Trainer

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class TrainingSettings(Settings):
    """How a stage is trained; a recipe subclasses it to change defaults."""

    epochs: Count = 10
    batch_size: Count = 64
    accumulate: Count = 1
    lr: Positive = 1e-3
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    warmup: Annotated[float, Field(ge=0)] = 0.1  # updates, or a fraction of all if below 1
    floor: Annotated[float, Field(ge=0, le=1)] = 1e-3  # the last rate as a fraction of the highest
    clip_norm: Positive | None = 1.0
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    early_stopping: Count | None = None
    monitor: str = "loss"
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    compile: Literal["auto", "off", "default", "reduce-overhead", "max-autotune"] = "auto"
    device: str = "auto"
    checkpoint_every: Count | None = None  # steps; null for after every epoch only
    log: tuple[Literal["jsonl", "csv", "tensorboard"], ...] = ("jsonl",)
    log_every: Count = 50


class LoadingSettings(Settings):
    """How a store is read; see ``stoker.Loader``."""

    num_workers: int | None = Field(default=None, ge=0)
    memory_bytes: Count | None = None  # for batches read ahead
    preload: bool | Count = False
    cache: str | None = None


class WindowLoadingSettings(LoadingSettings):
    """How windows over sessions are read."""

    prefetch: Count = 2  # batches read ahead, for each thread; memory_bytes goes before it

    @model_validator(mode="after")
    def _for_windows(self) -> "WindowLoadingSettings":
        if self.preload or self.cache is not None:
            raise ValueError("preload and cache are for whole samples; windows of mapped files need neither")
        return self


class RecipeSettings(Settings):
    """What every recipe has; its own sections are added in a subclass."""

    data: Path | None = None  # raw files in the system's layout, or a store; null for synthetic data
    out: Path = Path("runs")  # stores, checkpoints, metrics
    seed: int = 0
    progress: bool = True
    pretrained: Path | None = None  # weights to start from, evaluate or predict with; null: those under `out`
    resume: str | None = None  # auto, last, previous, best, a path, fresh; see ``stoker.Trainer.fit``
    loading: LoadingSettings = Field(default_factory=LoadingSettings)
    training: TrainingSettings = Field(default_factory=TrainingSettings)


class WindowRecipeSettings(RecipeSettings):
    """Of a recipe that learns from windows over sessions."""

    loading: WindowLoadingSettings = Field(default_factory=WindowLoadingSettings)


def make_trainer(
    model: "nn.Module",
    task: "Task",
    settings: RecipeSettings,
    *,
    folder: Path | None,
    optimizer: Callable[[Any], Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> "Trainer":
    """The trainer of a stage: AdamW, warm-up and cosine, as `settings.training` says.

    Args:
        model: moved to the device.
        task: how a batch becomes a loss.
        settings: those of the recipe.
        folder: for checkpoints, metrics.json and logs; None to evaluate or predict only.
        optimizer: makes another one of parameters.
        options: keywords of ``stoker.Trainer`` that go before the settings.
    """
    import functools

    import torch

    from stoker.train import Trainer, WarmupCosine

    ask = settings.training
    keywords: dict[str, Any] = {
        "optimizer": optimizer
        or functools.partial(torch.optim.AdamW, lr=ask.lr, weight_decay=ask.weight_decay),
        "scheduler": WarmupCosine(warmup=ask.warmup, floor=ask.floor),
        "precision": ask.precision,
        "compile": ask.compile,
        "accumulate": ask.accumulate,
        "clip_norm": ask.clip_norm,
        "ema": ask.ema,
        "checkpoint_dir": folder,
        "checkpoint_every": ask.checkpoint_every,
        "monitor": ask.monitor,
        "early_stopping": ask.early_stopping,
        "log": ask.log,
        "log_every": ask.log_every,
        "progress": settings.progress,
        "device": ask.device,
        "seed": settings.seed,
        "config": settings.model_dump(mode="json"),
    }
    if folder is None:
        keywords |= {"ema": None, "log": None}
    return Trainer(model, task, **keywords | dict(options or {}))
