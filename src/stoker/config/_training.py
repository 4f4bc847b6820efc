"""What a training run is, as a file, a profile and the command line give it."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from stoker.config._settings import Settings

Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Arguments = dict[str, Any]


class PartSettings(Settings):
    """One part of the data: a store, a named split of one, or HDF5 files as they are."""

    store: Path | None = None
    split: str | None = None  # null for all of the store
    files: str | tuple[str, ...] | None = None  # a path, a folder, a pattern or several paths; for windows

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if (self.store is None) == (self.files is None):
            got = "neither" if self.store is None else "both"
            raise ValueError(f"a part of the data must be either a store or files, got {got}")
        if self.files is not None and self.split is not None:
            raise ValueError(f"files have no splits, got {self.split!r}; name the files of the split")
        return self


class WindowSettings(Settings):
    """Windows over long sessions; see ``stoker.windows`` for the meaning of each."""

    length: Count  # time steps
    stride: Count | None = None  # null for the length: no overlap
    padding: tuple[NotNegative, NotNegative] = (0, 0)  # context left and right
    jitter: NotNegative = 0  # training data only
    skip: str | None = None  # all_zero:FIELD, or module:callable
    time_axis: int | dict[str, int] | None = None
    channels_first: bool = False
    group: str | None = None  # of files
    dataset: str | None = None  # of files
    chunk_cache_bytes: NotNegative = 64 << 20  # for decoded chunks of compressed data


class LoaderSettings(Settings):
    """How the data is read; see ``stoker.Loader`` for the meaning of each."""

    shuffle: bool | Literal["quasi"] = True  # training data only
    balance: str | None = None  # a field whose classes are drawn equally often; training data only
    weights: str | None = None  # a field by whose numbers samples are drawn; training data only
    num_workers: int | None = Field(default=None, ge=0)
    memory_bytes: Count | None = None  # for batches read ahead
    cache: str | None = None  # a folder for decoded data, or auto
    preload: bool | Count = False
    drop_last: bool = False
    ragged: Literal["pad", "pack", "list"] = "pad"
    pad_values: dict[str, float] | None = None
    on_bad_sample: Literal["raise", "skip"] = "raise"

    @model_validator(mode="after")
    def _draws_one_way(self) -> Self:
        if self.balance is not None and self.weights is not None:
            raise ValueError("samples are drawn by balance or by weights, got both; leave one out")
        return self


class DataSettings(Settings):
    """What is trained on and what it is judged by."""

    train: PartSettings
    val: PartSettings | None = None
    windows: WindowSettings | None = None  # null for whole samples
    fields: tuple[str, ...] | None = None  # null for all
    loader: LoaderSettings = Field(default_factory=LoaderSettings)

    @model_validator(mode="after")
    def _cuts_files(self) -> Self:
        parts = [part for part in (self.train, self.val) if part is not None]
        if self.windows is None and any(part.files is not None for part in parts):
            raise ValueError(
                "files are sessions to cut windows from, got no windows; add data.windows.length"
            )
        return self


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
