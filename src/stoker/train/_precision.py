"""Precision: which autocast and which gradient scaler a device needs."""

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch

from stoker.errors import UsageError

PrecisionName = Literal["auto", "fp32", "bf16", "fp16"]

_NOTHING = contextlib.nullcontext()
_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """What forward passes are computed in; weights and optimizer stay float32."""

    name: str
    device_type: str

    @property
    def dtype(self) -> torch.dtype | None:
        """Of autocast; None for float32 throughout."""
        return _DTYPES[self.name]

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """For the forward pass and the loss."""
        if self.dtype is None:
            return _NOTHING
        return torch.autocast(self.device_type, dtype=self.dtype)

    def scaler(self) -> "torch.amp.GradScaler | None":
        """For fp16, whose small gradients would become zero; it reads one number a step from the device."""
        return torch.amp.GradScaler(self.device_type) if self.name == "fp16" else None


def choose_precision(name: str, device: torch.device) -> Precision:
    """The named one; "auto" is bf16 where a CUDA device computes it, else fp16 there, else fp32.

    fp16 on the CPU works, scaler and all, so that a run can be tried there; a warning says that it
    is slow.
    """
    if name not in {"auto", *_DTYPES}:
        raise UsageError(f"precision must be one of auto, fp32, bf16, fp16, got {name!r}")
    if name == "auto":
        if device.type != "cuda":
            return Precision("fp32", device.type)
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return Precision("bf16" if native else "fp16", device.type)
    if name == "fp16" and device.type == "cpu":
        warnings.warn(
            "precision fp16 on the CPU is right but slow, few CPUs compute it; bf16 or fp32 suit it better",
            stacklevel=3,
        )
    return Precision(name, device.type)
