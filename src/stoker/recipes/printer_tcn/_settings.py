"""The settings of the printer system; every key has a default, and its sizes suit two CPU cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stoker.config import Settings
from stoker.recipes._settings import TrainingSettings, WindowLoadingSettings, WindowRecipeSettings
from stoker.recipes.printer_tcn._axis import Axis

Count = Annotated[int, Field(ge=1)]
Steps = Annotated[int, Field(ge=0)]  # of time, at 100 a second
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class SyntheticSettings(Settings):
    """How much is simulated where there is no data."""

    num_parts: Annotated[int, Field(ge=1)] = 6
    layers_per_part: Count = 8
    points_per_layer: Annotated[int, Field(ge=100)] = 1200  # about; layers differ by 20 %
    file_format: Literal["mat", "csv"] = "mat"


class SplitSettings(Settings):
    """Which layers are for what. By part, no part is ever in two splits."""

    by: Literal["part", "layer"] = "part"  # layer: each part's last 30 % of layers, for a single part
    val: tuple[str, ...] | None = None  # parts by name; null: dealt by their names, 70/15/15 %
    test: tuple[str, ...] | None = None


class WindowSettings(Settings):
    """What the model sees and how far ahead it looks; see ``stoker.windows``."""

    length: Count = 200  # steps that it sees
    horizon: Steps = 50  # quality is that so many steps after the last of them
    stride: Count = 5
    jitter: Steps | None = None  # of training windows; null: up to the next one's start

    @property
    def training_jitter(self) -> int:
        """The most that a training window is moved."""
        return self.stride - 1 if self.jitter is None else self.jitter


class PhysicsSettings(Settings):
    """The machine: two axes, each a mass on a belt."""

    mass: tuple[Positive, Positive] = (0.485, 0.650)  # kg, x and y
    stiffness: Positive = 150_000.0  # N/m
    damping: NotNegative = 25.0  # N s/m

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Those of x and y."""
        x, y = (Axis(mass, self.stiffness, self.damping) for mass in self.mass)
        return x, y


class ModelSettings(Settings):
    """Blocks of two causal convolutions; a head for the states of every step, one for quality."""

    channels: tuple[Count, ...] = (16, 16, 32)
    dilations: tuple[Count, ...] = (1, 2, 4)
    kernel: Annotated[int, Field(ge=2)] = 3
    hidden: Count = 64
    dropout: Probability = 0.0  # simulations have no noise to learn by heart

    @property
    def receptive_field(self) -> int:
        """Steps that an estimate can depend on, its own included."""
        return 1 + 2 * (self.kernel - 1) * sum(self.dilations)

    @model_validator(mode="after")
    def _fits_together(self) -> "ModelSettings":
        if not len(self.channels) == len(self.dilations) > 0:
            raise ValueError("channels and dilations must be equally many, at least one")
        return self


class LossSettings(Settings):
    """What is minimised: errors by group, in units of the training data's deviations, and physics."""

    quality: NotNegative = 1.0
    states: NotNegative = 1.0
    physics: NotNegative = 0.5  # lambda: the residuals of dynamics and laws
    adaptive: bool = False  # weigh each target by a variance that is learned with the model


class EvaluationSettings(Settings):
    """Which layers are evaluated and predicted."""

    split: Literal["train", "val", "test", "all"] = "test"


class PrinterLoadingSettings(WindowLoadingSettings):
    """How windows are read."""

    prefetch: Count = 8


class PrinterTrainingSettings(TrainingSettings):
    """How the model is trained."""

    epochs: Count = 30
    batch_size: Count = 128
    lr: Positive = 5e-3
    weight_decay: NotNegative = 1e-5
    warmup: NotNegative = 0.05
    early_stopping: Count | None = 20
    monitor: str = "fraction_of_mean"


class PrinterSettings(WindowRecipeSettings):
    """From a printer's reference and temperatures to its hidden states."""

    out: Path = Path("runs/printer-tcn")
    synthetic: SyntheticSettings = Field(default_factory=SyntheticSettings)
    splits: SplitSettings = Field(default_factory=SplitSettings)
    windows: WindowSettings = Field(default_factory=WindowSettings)
    physics: PhysicsSettings = Field(default_factory=PhysicsSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    loss: LossSettings = Field(default_factory=LossSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    loading: PrinterLoadingSettings = Field(default_factory=PrinterLoadingSettings)
    training: PrinterTrainingSettings = Field(default_factory=PrinterTrainingSettings)

    @model_validator(mode="after")
    def _sees_enough(self) -> "PrinterSettings":
        least = self.model.receptive_field + 2
        if self.windows.length < least:
            raise ValueError(
                f"windows.length must be at least {least}, the model's receptive field and two steps, "
                f"got {self.windows.length}; choose smaller model.dilations or a longer window"
            )
        return self


_AS_DOCUMENTED: Mapping[str, Any] = {"channels": (128, 128, 256), "hidden": 256, "dropout": 0.1}

# `basic` and `high_performance` are the two commands of the system's document, with its sizes. Workers are
# threads here. There is no --cache_data: all windows are cut out of one mapped store, which is in memory as
# soon as it was read once.
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "basic": {
        "model": _AS_DOCUMENTED,
        "loading": {"num_workers": 8, "prefetch": 8},
        "training": {"epochs": 100, "batch_size": 512, "lr": 1e-3},
    },
    "high_performance": {
        "model": _AS_DOCUMENTED,
        "loading": {"num_workers": 8, "prefetch": 8},
        "training": {"epochs": 100, "batch_size": 512, "lr": 1e-3, "compile": "reduce-overhead"},
    },
    "low_memory": {
        "loading": {"num_workers": 2, "prefetch": 1},
        "training": {"batch_size": 32, "accumulate": 4},
    },
    "quick_demo": {
        "synthetic": {"num_parts": 4, "layers_per_part": 3, "points_per_layer": 800},
        "loading": {"num_workers": 2, "prefetch": 2},
        "training": {"epochs": 2, "precision": "fp32"},
    },
}
