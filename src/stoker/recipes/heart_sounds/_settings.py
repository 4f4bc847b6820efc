"""The settings of the heart-sound system; every key has a default."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stoker.config import Settings
from stoker.recipes._settings import RecipeSettings, TrainingSettings
from stoker.recipes.heart_sounds._cycles import CycleSettings

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
TaskName = Literal["circor-murmur", "circor-outcome", "physionet2016", "pascal", "folders"]


class SplitSettings(Settings):
    """Shares of the patients."""

    train: Fraction = 0.7
    val: Fraction = 0.15
    test: Fraction = 0.15

    @model_validator(mode="after")
    def _at_most_all(self) -> "SplitSettings":
        if self.train + self.val + self.test > 1 + 1e-9:
            raise ValueError("train, val and test must sum to at most 1")
        return self


class SyntheticSettings(Settings):
    """How much is made up where there is no data."""

    num_patients: Count = 60  # CirCor's have 1 to 4 recordings; elsewhere as many recordings, or so
    seconds: Positive = 10.0  # of CirCor's and CinC's recordings
    seed: int = 0  # of the recordings alone: runs with other seeds have the same data


class EncoderSettings(Settings):
    """The network; 32 and 4 are the original's sizes, the defaults train on two cores."""

    width: Count = 16  # channels of the first of four convolutions; each has twice as many as the last
    num_blocks: Annotated[int, Field(ge=0)] = 2  # state-space layers behind them
    state_size: Count = 16
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1


class ContrastSettings(Settings):
    """What pre-training compares."""

    temperature: Positive = 0.1
    cycle_weight: Annotated[float, Field(ge=0)] = 1.0
    part_weight: Annotated[float, Field(ge=0)] = 1.0  # of S1, systole, S2 and diastole
    same_recording: Literal["ignore", "negative"] = "ignore"  # other cycles of a cycle's own recording
    momentum: Annotated[float, Field(gt=0, lt=1)] | None = None  # 0.999: keys by a momentum encoder
    queue: Annotated[int, Field(ge=0)] = 0  # older keys that are compared with too; needs momentum

    @model_validator(mode="after")
    def _queue_needs_momentum(self) -> "ContrastSettings":
        if self.queue and self.momentum is None:
            raise ValueError("queue needs keys that change slowly; set momentum too, such as 0.999")
        return self


class ViewSettings(Settings):
    """How the two views of a cycle come about."""

    augment: Path | None = None  # a pipeline's file; null for the preset "heart_sounds"
    refresh_epochs: Count | None = None  # make views ahead, anew every so many epochs; null: in each step


class PretrainingSettings(TrainingSettings):
    """How the encoder is pre-trained."""

    epochs: Count = 15
    batch_size: Count = 64
    lr: Positive = 2e-3


class ClassifierTrainingSettings(TrainingSettings):
    """How a classifier is trained."""

    epochs: Count = 15
    batch_size: Count = 32
    monitor: str = "macro_f1"


class ClassifierSettings(Settings):
    """The head, and what is done about rare classes."""

    hidden: Annotated[int, Field(ge=0)] = 128  # 0: a linear head
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    balance: Literal["none", "weights", "focal", "sampler"] = "weights"  # by the training labels only
    focal_gamma: Annotated[float, Field(ge=0)] = 2.0
    augment: bool | Path = True  # True: small shifts, gains and noise; a pipeline's file; false: nothing
    threshold: Literal["youden", "f1"] = "youden"  # what the threshold chosen on validation data maximises


class FinetuneSettings(Settings):
    """What of the encoder learns, and where it comes from."""

    mode: Literal["full", "probe"] = "full"  # probe: a linear head on a frozen encoder
    from_scratch: bool = False  # random weights, to compare with
    probe_lr: Positive = 1e-2
    encoder_lr_scale: Annotated[float, Field(gt=0, le=1)] = 1.0  # of a full fine-tune's encoder


class HeartSoundSettings(RecipeSettings):
    """From recordings to a classifier."""

    task: TaskName = "circor-murmur"
    layout: Literal["auto", "circor", "cinc", "pascal", "folders"] = "auto"
    only_good: bool = True  # leave out what the collection itself calls bad
    cycles: CycleSettings = Field(default_factory=CycleSettings)
    splits: SplitSettings = Field(default_factory=SplitSettings)
    split_seed: int | None = None  # another split by patient than the store's own
    label_fraction: Fraction = 1.0  # of the training patients whose labels may be used
    synthetic: SyntheticSettings = Field(default_factory=SyntheticSettings)
    encoder: EncoderSettings = Field(default_factory=EncoderSettings)
    contrast: ContrastSettings = Field(default_factory=ContrastSettings)
    views: ViewSettings = Field(default_factory=ViewSettings)
    classifier: ClassifierSettings = Field(default_factory=ClassifierSettings)
    finetune: FinetuneSettings = Field(default_factory=FinetuneSettings)
    pretraining: PretrainingSettings = Field(default_factory=PretrainingSettings)
    training: ClassifierTrainingSettings = Field(default_factory=ClassifierTrainingSettings)


PROFILES: Mapping[str, Mapping[str, Any]] = {
    # the same updates in smaller pieces
    "low_memory": {
        "loading": {"memory_bytes": 64 << 20},
        "pretraining": {"batch_size": 32, "accumulate": 2},
        "training": {"batch_size": 8, "accumulate": 4},
        "contrast": {"momentum": 0.99, "queue": 1024},  # small batches have few others to compare with
    },
    # a GPU: the original's sizes
    "high_performance": {
        "loading": {"preload": True},
        "encoder": {"width": 32, "num_blocks": 4},
        "pretraining": {"batch_size": 256, "epochs": 100, "lr": 4e-3},
        "training": {"batch_size": 128, "epochs": 100, "lr": 2e-3},
    },
    # seconds: a quarter of the points, few recordings
    "quick_demo": {
        "cycles": {"rate": 1000, "length": 1600},
        "synthetic": {"num_patients": 24, "seconds": 6.0},
        "encoder": {"width": 8, "num_blocks": 1},
        "pretraining": {"epochs": 2, "precision": "fp32"},
        "training": {"epochs": 2, "precision": "fp32"},
    },
    # minutes on two CPU cores: 1,000 points a second hold all of the band up to 400 Hz
    "two_cores": {
        "cycles": {"rate": 1000, "length": 1600},
        "encoder": {"width": 8, "num_blocks": 1},
        "pretraining": {"epochs": 30},
        "training": {"epochs": 30, "lr": 3e-3},
    },
}
