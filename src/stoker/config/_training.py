"""What a training run is, as a file, a profile and the command line give it."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from stoker.config._settings import Settings

Count = Annotated[int, Field(ge=1)]
Arguments = dict[str, Any]


class PartSettings(Settings):
    """One part of the data: a store, or a named split of one."""

    store: Path
    split: str | None = None  # null for all of the store


class LoaderSettings(Settings):
    """How the data is read; see ``stoker.Loader`` for the meaning of each."""

    shuffle: bool | Literal["quasi"] = True  # training data only
    num_workers: int | None = Field(default=None, ge=0)
    memory_bytes: Count | None = None  # for batches read ahead
    cache: str | None = None  # a folder for decoded data, or auto
    preload: bool | Count = False
    drop_last: bool = False
    ragged: Literal["pad", "pack", "list"] = "pad"
    on_bad_sample: Literal["raise", "skip"] = "raise"


class DataSettings(Settings):
    """What is trained on and what it is judged by."""

    train: PartSettings
    val: PartSettings | None = None
    fields: tuple[str, ...] | None = None  # null for all
    loader: LoaderSettings = Field(default_factory=LoaderSettings)


class NamedSettings(Settings):
    """Something that a call makes: which, and with what arguments."""

    name: str
    arguments: Arguments = Field(default_factory=dict)


class ModelSettings(NamedSettings):
    """The model: ``module:callable`` that gives a torch module; the working directory is searched too."""

    @field_validator("name")
    @classmethod
    def _names_an_object(cls, name: str) -> str:
        module, _, attribute = name.partition(":")
        if not module or not attribute:
            raise ValueError(f"a model is named 'module:callable', such as nets:small_cnn, got {name!r}")
        return name


class TaskSettings(NamedSettings):
    """The task: classification, regression, segmentation, or ``module:callable`` that gives one."""


class OptimizerSettings(NamedSettings):
    """The optimizer: a class of torch.optim in any case of letters, or ``module:callable``."""

    name: str = "AdamW"
    lr: Annotated[float, Field(gt=0)] = 1e-3


class ScheduleSettings(Settings):
    """The learning rate over the run."""

    name: Literal["constant", "warmup_cosine"] = "constant"
    warmup: Annotated[float, Field(ge=0)] = 0.05  # updates, or a fraction of all if below 1
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0  # the last rate as a fraction of the highest


class TrainSettings(Settings):
    """A training run; see ``stoker.Trainer`` for the meaning of what is not explained here."""

    data: DataSettings
    model: ModelSettings
    task: TaskSettings
    augment: str | dict[str, Any] | None = None  # a preset, a pipeline's file, or the pipeline itself
    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    lr_scaling: Count | None = None  # the batch size for which optimizer.lr is meant
    epochs: Count = 10
    batch_size: Count | Literal["auto"] = 64  # samples a process gets in a step
    accumulate: Count = 1
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    checkpoint_dir: Path = Path("run")  # for checkpoints, metrics.json and logs
    checkpoint_every: Count | None = None  # steps; null for after every epoch only
    monitor: str = "loss"  # which epoch is best, such as auroc; of the validation data, if there are any
    mode: Literal["auto", "min", "max"] = "auto"
    early_stopping: Count | None = None  # epochs without a better one
    min_delta: Annotated[float, Field(ge=0)] = 0.0
    log: tuple[Literal["jsonl", "csv", "tensorboard"], ...] = ("jsonl",)
    log_every: Count = 50
    measure_training: bool = False
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    compile: Literal["auto", "off", "default", "reduce-overhead", "max-autotune"] = "auto"
    device: str = "auto"
    seed: int = 0
