"""The settings of the face-parsing system; every key has a default, and its sizes suit two CPU cores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stoker.config import Settings
from stoker.recipes._settings import RecipeSettings, TrainingSettings
from stoker.recipes.face_parsing._classes import NUM_CLASSES

Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class SyntheticSettings(Settings):
    """How many faces are drawn where there is no data."""

    num_train: Annotated[int, Field(ge=2)] = 240  # those for validation among them
    num_test: Annotated[int, Field(ge=0)] = 40  # these have masks too
    size: Annotated[int, Field(ge=32)] = 96  # pixels an edge
    layout: Literal["folders", "celebamask"] = "folders"


class ImageSettings(Settings):
    """What is packed of an image, and who is for validation."""

    size: Annotated[int, Field(ge=32)] = 96  # pixels an edge; images are packed at the size of training
    val_fraction: Fraction = 0.1  # of the images for training, where none are for validation already
    split_seed: int = 42  # which ones: a function of this and of the name


class AugmentSettings(Settings):
    """What happens to a training batch, on the device; a probability of 0 leaves a part out."""

    flip: Probability = 0.5  # with left and right classes swapped
    rotate: Annotated[float, Field(ge=0, le=180)] = 20.0  # degrees, at most, either way
    rotate_probability: Probability = 0.6
    scale: tuple[Positive, Positive] = (0.8, 1.2)
    scale_probability: Probability = 0.6
    brightness: Annotated[float, Field(ge=0, le=1)] = 0.3
    contrast: Annotated[float, Field(ge=0, le=1)] = 0.2
    saturation: Annotated[float, Field(ge=0, le=1)] = 0.2
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    colour_probability: Probability = 0.5
    blur_sigma: tuple[Positive, Positive] = (0.1, 2.0)  # pixels, with a kernel of 3 x 3
    blur_probability: Probability = 0.3
    noise: NotNegative | tuple[NotNegative, NotNegative] = 0.03  # standard deviation, of 0 to 1
    noise_probability: Probability = 0.3
    cutmix_probability: Probability = 0.0  # 0.3 in the original's advanced policy
    cutmix_alpha: Positive = 1.0
    cutmix_edge: tuple[Probability, Probability] = (0.2, 0.8)  # of the box, of the image's
    mixup_probability: Probability = 0.0  # likewise
    mixup_alpha: Positive = 0.2


class ModelSettings(Settings):
    """The network: four stages of attention over ever coarser patches, joined by a light decoder."""

    widths: tuple[Count, Count, Count, Count] = (16, 32, 64, 96)
    depths: tuple[Count, Count, Count, Count] = (1, 1, 2, 1)
    stride: Literal[2, 4] = 2  # of the first stage: pixels an edge of a patch; 4 for images of 512
    num_heads: Count = 1
    reductions: tuple[Count, Count, Count, Count] = (8, 4, 2, 1)  # keys and values are so much coarser
    mlp_ratio: Count = 2
    decoder: Count = 48
    local: bool = True  # a gated local convolution behind the decoder
    dropout: Annotated[float, Field(ge=0, lt=0.8)] = 0.0  # half of it in the first stage, 1.25 in the last
    max_parameters: Count = 1_821_085  # more are refused: the limit of the challenge

    @model_validator(mode="after")
    def _fits_together(self) -> "ModelSettings":
        odd = [width for width in self.widths if width % self.num_heads]
        if odd:
            raise ValueError(f"widths must be multiples of num_heads={self.num_heads}, got {odd[0]}")
        if self.decoder % 4:
            raise ValueError(f"decoder must be a multiple of 4, got {self.decoder}")
        return self


class LossSettings(Settings):
    """What is minimised: a weighted sum. Pixels without a class never count."""

    cross_entropy: NotNegative = 1.0
    dice: NotNegative = 1.0
    focal: NotNegative = 0.0
    focal_alpha: Positive = 0.25
    focal_gamma: NotNegative = 2.0
    class_weights: tuple[NotNegative, ...] | None = None  # of cross-entropy and focal loss, one a class

    @model_validator(mode="after")
    def _one_a_class(self) -> "LossSettings":
        given = self.class_weights
        if given is not None and (len(given) != NUM_CLASSES or not any(given)):
            raise ValueError(f"class_weights must be {NUM_CLASSES} numbers, not all 0, got {len(given)}")
        if not self.cross_entropy + self.dice + self.focal:
            raise ValueError("one of cross_entropy, dice and focal must be above 0")
        return self


class EvaluationSettings(Settings):
    """Which faces are evaluated and predicted."""

    # null: to predict, test images if there are any; to evaluate, if these have masks; else validation
    split: Literal["train", "val", "test", "all"] | None = None
    grid: Annotated[int, Field(ge=0)] = 8  # faces in the picture of predictions


class FaceTrainingSettings(TrainingSettings):
    """How the model is trained."""

    epochs: Count = 30
    batch_size: Count = 8  # of few images: for the same work, updates of 4 or 8 learned more than of 16
    lr: Positive = 3e-3
    weight_decay: NotNegative = 1e-4
    warmup: NotNegative = 0.05
    early_stopping: Count | None = None
    monitor: str = "f_score"


class FaceSettings(RecipeSettings):
    """From a face to the class of each of its pixels."""

    out: Path = Path("runs/face-parsing")
    synthetic: SyntheticSettings = Field(default_factory=SyntheticSettings)
    images: ImageSettings = Field(default_factory=ImageSettings)
    augment: AugmentSettings = Field(default_factory=AugmentSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    loss: LossSettings = Field(default_factory=LossSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    training: FaceTrainingSettings = Field(default_factory=FaceTrainingSettings)


# The original's sizes: 512 x 512, its network, 32 images an update, 5 of 150 epochs of warm-up.
_FULL: Mapping[str, Any] = {
    "images": {"size": 512},
    "synthetic": {"size": 512},
    "model": {
        "widths": (32, 64, 128, 192),
        "depths": (1, 2, 2, 2),
        "stride": 4,
        "decoder": 128,
        "dropout": 0.15,
    },
    "training": {
        "epochs": 150,
        "batch_size": 32,
        "lr": 8e-4,
        "warmup": 0.034,
        "early_stopping": 50,
    },
}
PROFILES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "full": _FULL,
    "low_memory": {
        **_FULL,
        "loading": {"memory_bytes": 64 << 20},
        "training": {**_FULL["training"], "batch_size": 8, "accumulate": 4},
    },
    # larger steps and mixing, as the original suggests once augmentation is off the CPU; lr by √(64 / 32)
    "high_performance": {
        **_FULL,
        "loading": {"preload": True},
        "augment": {"cutmix_probability": 0.3, "mixup_probability": 0.3},
        "training": {**_FULL["training"], "batch_size": 64, "lr": 1.13e-3, "ema": 0.999},
    },
    "quick_demo": {
        "images": {"size": 64},
        "synthetic": {"num_train": 48, "num_test": 8, "size": 64},
        "training": {"epochs": 2, "precision": "fp32"},
    },
}
