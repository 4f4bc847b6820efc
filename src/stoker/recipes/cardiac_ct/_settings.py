"""The settings of the cardiac CT system; every key has a default, and its sizes suit two CPU cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stoker.config import Settings
from stoker.recipes._settings import LoadingSettings, RecipeSettings, TrainingSettings

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=1)]

AXES = ({"L", "R"}, {"P", "A"}, {"I", "S"})


class SyntheticSettings(Settings):
    """How much is made up where there is no data."""

    num_patients: Annotated[int, Field(ge=3)] = 130
    scans_per_patient: Count = 2  # at most; every other patient has one
    stenosis_share: Share = 0.35  # of the patients; in the original's data 7 %


class StudySettings(Settings):
    """The table of studies, and where their volumes lie."""

    csv: Path | None = None  # null: studies.csv in the data's folder
    key: str = "basename"  # the column that names a study
    patient: str = "patient_id"  # the column whose values are never in two splits
    path: str = "stanford_{folder}/{basename}.nii.gz"  # under the data; **/{…}: by file name, anywhere
    limit: Count | None = None  # only the first so many, to try things out


class LabelSettings(Settings):
    """What is learned: columns, joined to the volumes by the study's key whenever they are loaded."""

    csv: Path | None = None  # null: the table of studies; another one must have the key's column too
    regression: tuple[str, ...] = ("lvef",)  # numbers
    classification: tuple[str, ...] = ("AS_maybe",)  # 0 or 1

    @model_validator(mode="after")
    def _are_some(self) -> "LabelSettings":
        names = (*self.regression, *self.classification)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"there must be a column to learn, and none twice, got {names}")
        return self


class VolumeSettings(Settings):
    """What is done to a volume, once, when it is packed; other values need a new pack."""

    orientation: str = "RAS"  # where the three axes of an array point to
    spacing: tuple[Positive, Positive, Positive] | None = (7.0, 7.0, 8.0)  # mm; null: whole volume to `size`
    size: tuple[Count, Count, Count] = (48, 48, 40)  # voxels, cut out of the middle or padded with `low`
    low: float = -1000.0  # HU, becomes 0
    high: float = 1000.0  # HU, becomes 1
    dtype: Literal["int16", "float16", "float32"] = "int16"  # on disk, in HU; int16 is right to 0.5 HU

    @model_validator(mode="after")
    def _can_be(self) -> "VolumeSettings":
        letters = list(self.orientation)
        if len(letters) != 3 or not all(any(each in pair for each in letters) for pair in AXES):
            raise ValueError(f"orientation must be letters such as RAS or LPS, got {self.orientation!r}")
        if not -32768 <= self.low < self.high <= 32767:
            raise ValueError(f"low must be below high, both in int16's range, got {self.low} and {self.high}")
        return self


class PackingSettings(Settings):
    """How the work of packing is done; no setting here changes what is packed."""

    batch_size: Count | None = None  # volumes a worker takes at a time; null: by their cost
    compression: Literal["none", "lz4", "zstd", "gzip"] = "none"


class SplitSettings(Settings):
    """Which patients are for what; the shares hold within each label, as far as whole patients allow."""

    train: Share = 0.7
    val: Share = 0.15
    test: Share = 0.15
    column: str | None = None  # of the table of studies, with train, val or test; null: dealt by a hash
    seed: int = 0  # of that hash

    @model_validator(mode="after")
    def _sum_up(self) -> "SplitSettings":
        if self.train + self.val + self.test > 1 + 1e-9:
            raise ValueError(f"shares must add up to 1 at most, got {self.train}, {self.val}, {self.test}")
        return self


class AugmentSettings(Settings):
    """What happens to a training batch on the device; null leaves a part out. Nothing is mirrored."""

    rotate: NotNegative | None = 5.0  # degrees about each axis, at most, either way
    scale: tuple[Positive, Positive] | None = None  # size is what heart failure looks like: careful
    translate: NotNegative | None = 0.05  # of the size
    intensity_scale: tuple[Positive, Positive] | None = (0.95, 1.05)
    intensity_shift: NotNegative | None = 0.02  # of 0 to 1
    gamma: tuple[Positive, Positive] | None = None
    noise: NotNegative | None = 0.02  # standard deviation, at most
    blur: NotNegative | None = None  # voxels, at most


class ModelSettings(Settings):
    """The network: a 3-D residual encoder, a shared layer, an output for each label."""

    # of 0 to 1, a channel each: everything; soft tissue and contrast medium; lime and bone
    windows: Annotated[tuple[tuple[float, float], ...], Field(min_length=1)] = (
        (0, 1),
        (0.425, 0.675),
        (0.65, 1),
    )

    widths: Annotated[tuple[Count, ...], Field(min_length=1)] = (
        8,
        16,
        32,
        64,
    )  # channels of each stage; each halves the size
    blocks: Count = 1  # in each stage
    hidden: Count = 64
    dropout: Probability = 0.1


class LossSettings(Settings):
    """Regressions by the squared error of standardised values, decisions by cross-entropy."""

    regression: NotNegative = 1.0
    classification: NotNegative = 1.0
    balance: bool = True  # positives weigh as much as negatives, at most 20 each


class EvaluationSettings(Settings):
    """Which studies are evaluated and predicted."""

    split: Literal["train", "val", "test", "all"] = "test"


class CardiacLoadingSettings(LoadingSettings):
    """How volumes are read. `preload` is for the training data."""

    preload_val: bool | Count = False  # the same for the validation data
    cache_bytes: Count | None = None  # of prepared volumes kept in memory, where raw files are read


class CardiacTrainingSettings(TrainingSettings):
    """How the model is trained."""

    epochs: Count = 30
    batch_size: Count = 8
    lr: Positive = 3e-3
    weight_decay: NotNegative = 1e-4
    floor: Annotated[float, Field(ge=0, le=1)] = 0.01
    log_every: Count = 20


class CardiacSettings(RecipeSettings):
    """From a chest CT to the ejection fraction and to aortic stenosis."""

    out: Path = Path("runs/cardiac-ct")
    store: Path | None = None  # where the packed volumes are, or shall be; null: under `out`
    packed: Literal["auto", "pack", "never"] = "auto"  # auto: if there is a store; pack: bring it up to date
    synthetic: SyntheticSettings = Field(default_factory=SyntheticSettings)
    studies: StudySettings = Field(default_factory=StudySettings)
    labels: LabelSettings = Field(default_factory=LabelSettings)
    volume: VolumeSettings = Field(default_factory=VolumeSettings)
    packing: PackingSettings = Field(default_factory=PackingSettings)
    splits: SplitSettings = Field(default_factory=SplitSettings)
    augment: AugmentSettings = Field(default_factory=AugmentSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    loss: LossSettings = Field(default_factory=LossSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    loading: CardiacLoadingSettings = Field(default_factory=CardiacLoadingSettings)
    training: CardiacTrainingSettings = Field(default_factory=CardiacTrainingSettings)

    @property
    def store_path(self) -> Path:
        """Where `stoker pack --recipe cardiac-ct` puts the store unless it is told otherwise."""
        return self.store or self.out / "cardiac-ct.stoker"


# The document's own configuration: 224 x 224 x 160 voxels of 1.5 x 1.5 x 3 mm, 100 epochs, batches of 8.
_ORIGINAL: Mapping[str, Any] = {
    "volume": {"spacing": (1.5, 1.5, 3.0), "size": (224, 224, 160)},
    "splits": {"train": 0.8, "val": 0.1, "test": 0.1},
    "model": {"widths": (32, 64, 128, 256, 512), "blocks": 2, "hidden": 256, "dropout": 0.3},
    "packing": {"batch_size": 16},
    "loading": {"num_workers": 4},
    "training": {"epochs": 100, "batch_size": 8, "lr": 1e-4, "weight_decay": 1e-5},
}

PROFILES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "original": _ORIGINAL,
    # what the document says to do where memory is short
    "low_memory": {
        **_ORIGINAL,
        "packing": {"batch_size": 1},
        "loading": {"num_workers": 2, "memory_bytes": 128 << 20},
        "training": {"epochs": 100, "batch_size": 2, "accumulate": 4, "lr": 1e-4, "weight_decay": 1e-5},
    },
    # what it says to do where there is enough: the validation data in memory, more workers
    "high_performance": {
        **_ORIGINAL,
        "loading": {"num_workers": 8, "preload_val": True},
        "training": {"epochs": 100, "batch_size": 24, "lr": 3e-4, "weight_decay": 1e-5},
    },
    "quick_demo": {
        "synthetic": {"num_patients": 24},
        "model": {"widths": (8, 16, 32), "hidden": 32},
        "training": {"epochs": 2, "precision": "fp32"},
    },
}
