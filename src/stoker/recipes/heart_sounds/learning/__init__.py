"""The networks, losses and stages of the heart-sound system.

_encoder.py     convolutions and state-space layers    _parts.py      S1 … diastole as a mask, pooling
_views.py       two views, on the device               _info_nce.py   the contrastive loss, over ranks
_momentum.py    a following copy and its queue         _contrast.py   pre-training
_classifier.py  head, loss, class weights              _evaluation.py cycles, recordings, patients
_weights.py     weights out of checkpoints             _stages.py     pretrain … evaluate
"""

from stoker.recipes.heart_sounds.learning._classifier import Classifier, ClassifierTask, class_weights
from stoker.recipes.heart_sounds.learning._contrast import Contrast, ContrastTask
from stoker.recipes.heart_sounds.learning._encoder import Encoded, Encoder
from stoker.recipes.heart_sounds.learning._evaluation import Judgement, evaluate
from stoker.recipes.heart_sounds.learning._info_nce import info_nce
from stoker.recipes.heart_sounds.learning._momentum import MomentumCopy, follow_after
from stoker.recipes.heart_sounds.learning._parts import part_mask, pool_parts
from stoker.recipes.heart_sounds.learning._stages import run
from stoker.recipes.heart_sounds.learning._views import TwoViews, classifier_pipeline, pretraining_views
from stoker.recipes.heart_sounds.learning._weights import encoder_of

__all__ = [
    "Classifier",
    "ClassifierTask",
    "Contrast",
    "ContrastTask",
    "Encoded",
    "Encoder",
    "Judgement",
    "MomentumCopy",
    "TwoViews",
    "class_weights",
    "classifier_pipeline",
    "encoder_of",
    "evaluate",
    "follow_after",
    "info_nce",
    "part_mask",
    "pool_parts",
    "pretraining_views",
    "run",
]
