"""The settings of the EMG-to-pose system; every key has a default, and its sizes suit two CPU cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stoker.config import Settings
from stoker.recipes._settings import TrainingSettings, WindowLoadingSettings, WindowRecipeSettings

Count = Annotated[int, Field(ge=1)]
Steps = Annotated[int, Field(ge=0)]  # of time, at 2000 a second
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class SyntheticSettings(Settings):
    """How much is made up where there is no data; the last two users are held out."""

    num_users: Annotated[int, Field(ge=3)] = 8
    sessions_per_user: Count = 2  # each with a left and a right hand
    seconds: Positive = 20.0


class WindowSettings(Settings):
    """What is cut out of a session; see ``stoker.windows``."""

    length: Count = 500
    stride: Count | None = None  # null: the length
    padding: tuple[Steps, Steps] = (0, 0)  # context left and right, on which there is no loss
    jitter: Steps | None = None  # of training windows; null: up to the next one's start
    skip_failed: bool = True  # no window with failed inverse kinematics; false: they only do not count
    chunk_cache_bytes: Steps = 64 << 20  # for decoded chunks of compressed sessions

    @property
    def training_jitter(self) -> int:
        """The most that a training window is moved."""
        return (self.stride or self.length) - 1 if self.jitter is None else self.jitter


class NormalizeSettings(Settings):
    """How the mean and deviation of each electrode are found, in training sessions only."""

    method: Literal["sampled", "exact", "none"] = "sampled"
    max_samples: Count = 10_000  # time steps of each session, spread evenly over all of them


class AugmentSettings(Settings):
    """What happens to the EMG of a training batch, on the device; null leaves a part out."""

    rotate: Steps | None = 1  # electrodes by which the band is turned, at most, either way
    channel_dropout: Probability | None = 0.05  # that an electrode is lost, in a quarter of the windows
    scale: tuple[Positive, Positive] | None = (0.9, 1.1)
    noise_snr_db: tuple[float, float] | None = None
    time_mask: Count | None = None  # steps, at most, that are set to zero


class ModelSettings(Settings):
    """The network: strided convolutions with time-depth separable blocks, a head, 20 angles."""

    features: Count = 64
    width: Count = 8  # of a block's convolution: features / width channels share it
    strides: tuple[Count, ...] = (5, 2, 2)  # their product is the time steps of a frame: 100 frames a second
    kernels: tuple[Count, ...] = (11, 5, 5)
    num_blocks: tuple[Steps, ...] = (0, 1, 1)  # behind each of the convolutions
    block_kernel: Count = 9
    head: Literal["lstm", "attention"] = "lstm"
    hidden: Count = 64
    num_layers: Count = 1
    num_heads: Count = 4  # of attention
    bidirectional: bool = True  # false: an LSTM that looks back only
    output: Literal["position", "velocity"] = "position"  # velocity: added up from the first frame's pose
    dropout: Probability = 0.1

    @model_validator(mode="after")
    def _fits_together(self) -> "ModelSettings":
        if not len(self.strides) == len(self.kernels) == len(self.num_blocks) > 0:
            raise ValueError("strides, kernels and num_blocks must be equally many, at least one")
        if any(kernel < stride for kernel, stride in zip(self.kernels, self.strides, strict=True)):
            raise ValueError(f"no kernel may be smaller than its stride, got {self.kernels}, {self.strides}")
        if self.features % self.width:
            raise ValueError(f"features must be a multiple of width, got {self.features} and {self.width}")
        if self.head == "attention" and self.features % (2 * self.num_heads):
            raise ValueError(f"features must be a multiple of 2 x num_heads, got {self.features}")
        return self


class LossSettings(Settings):
    """What is minimised; angles in rad, fingertips in mm."""

    mae: NotNegative = 1.0
    mse: NotNegative = 0.0
    fingertip: NotNegative = 0.01
    fingertip_every: Count = 10  # time steps: hands move slowly, and this part of the loss is the dearest


class MeasuringSettings(Settings):
    """How errors are measured."""

    online: bool = True  # false: keep every prediction and measure at the end, for debugging
    derivative_steps: Count = 40  # time steps between two poses of a velocity: 50 Hz


class EvaluationSettings(Settings):
    """Which sessions are evaluated and predicted."""

    split: Literal["train", "val", "test", "all"] = "test"


class EmgLoadingSettings(WindowLoadingSettings):
    """How windows are read."""

    num_workers: int | None = Field(default=4, ge=0)  # threads


class EmgTrainingSettings(TrainingSettings):
    """How the model is trained."""

    epochs: Count = 100
    batch_size: Count = 64
    lr: Positive = 4e-3
    weight_decay: NotNegative = 0.01
    warmup: NotNegative = 0.05
    early_stopping: Count | None = 20
    monitor: str = "mae"


class EmgSettings(WindowRecipeSettings):
    """From wrist EMG to the angles of a hand."""

    out: Path = Path("runs/emg-pose")
    synthetic: SyntheticSettings = Field(default_factory=SyntheticSettings)
    windows: WindowSettings = Field(default_factory=WindowSettings)
    normalize: NormalizeSettings = Field(default_factory=NormalizeSettings)
    augment: AugmentSettings = Field(default_factory=AugmentSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    loss: LossSettings = Field(default_factory=LossSettings)
    measuring: MeasuringSettings = Field(default_factory=MeasuringSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    loading: EmgLoadingSettings = Field(default_factory=EmgLoadingSettings)
    training: EmgTrainingSettings = Field(default_factory=EmgTrainingSettings)


# As the system's document tabulates them. Workers are threads here. Prefetched batches of each worker are
# the memory that is read ahead into. Threads stay as long as the loader (persistent_workers), and buffers
# are pinned if and only if batches go to a GPU (pin_memory): neither is a setting.
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "low_memory": {
        "windows": {"chunk_cache_bytes": 32 << 20},
        "normalize": {"max_samples": 5_000},
        "loading": {"num_workers": 2, "prefetch": 1},
        "training": {"batch_size": 16, "accumulate": 4},
    },
    "high_performance": {
        "windows": {"chunk_cache_bytes": 128 << 20},
        "normalize": {"max_samples": 20_000},
        "loading": {"num_workers": 8, "prefetch": 4},
        "training": {"batch_size": 128},
    },
    # little data and two epochs are ours: the document leaves them open
    "quick_demo": {
        "synthetic": {"num_users": 4, "sessions_per_user": 1, "seconds": 10.0},
        "loading": {"num_workers": 2, "prefetch": 2},
        "training": {"batch_size": 32, "epochs": 2, "precision": "fp32"},
    },
}
