"""Transforms that mix each sample with another of its batch.

They work on signals [B, C, T], images [B, C, H, W] and volumes [B, C, D, H, W] alike, together with their
labels and masks. λ ("lam") is always the share of the sample itself that is kept.

What depends on what: whether a sample is mixed, its λ and its box are drawn for the sample alone, as every
other parameter. Its partner is the next sample in a keyed order of the batch, so it depends on which
samples the batch holds (not on their order): another batch size, another number of ranks, or a last batch
of another size gives other partners. Nobody is their own partner, unless alone.

_mixup.py    MixUp                   _labels.py   labels as numbers that can be mixed
_cutmix.py   CutMix                  _beta.py     the distribution of λ
"""

from stoker.augment.mix._beta import Beta
from stoker.augment.mix._cutmix import CutMix
from stoker.augment.mix._mixup import MixUp

__all__ = ["Beta", "CutMix", "MixUp"]
