"""A compiled model that falls back to the plain one where compiling fails, and says so once."""

import warnings
from typing import Any, Literal, Self

import torch
from torch import nn

from stoker.errors import UsageError
from stoker.train._memory import is_out_of_memory

CompileMode = Literal["auto", "off", "default", "reduce-overhead", "max-autotune"]

_MODES = ("auto", "off", "default", "reduce-overhead", "max-autotune")


def choose_compile(mode: str, device: torch.device) -> str:
    """The mode itself; "auto" compiles on CUDA devices that Triton knows, and nowhere else.

    On a CPU the minutes that a compiler takes are rarely earned back.
    """
    if mode not in _MODES:
        raise UsageError(f"compile must be one of {', '.join(_MODES)}, got {mode!r}")
    if mode != "auto":
        return mode
    known = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)
    return "default" if known else "off"


class CompileGuard:
    """Whether compiling is still believed in; shared by all models that are compiled alike."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.failed = False

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model compiled at its first call; itself if the mode is "off"."""
        if self.mode == "off" or self.failed:
            return model
        try:
            compiled = torch.compile(model, mode=None if self.mode == "default" else self.mode)
        except Exception as error:  # noqa: BLE001 - whatever a compiler fails with
            self.give_up(error)
            return model
        return GuardedModel(model, compiled, self)

    def give_up(self, error: BaseException) -> None:
        """Go on without; the first time with a warning that says why."""
        if self.failed:
            return
        self.failed = True
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else "no reason was given"
        warnings.warn(
            f"torch.compile failed, the model runs uncompiled: {type(error).__name__}: {reason}; "
            f"pass compile='off' to say that this is known",
            stacklevel=3,
        )


class GuardedModel(nn.Module):
    """Calls the compiled model until it fails where the plain one does not; has the model's attributes."""

    def __init__(self, model: nn.Module, compiled: Any, guard: CompileGuard) -> None:
        super().__init__()
        self._parts = {"model": model, "compiled": compiled}  # in a dict, not registered as submodules
        self._guard = guard

    @property
    def training(self) -> bool:
        """The model's own mode."""
        return bool(self._parts["model"].training)

    @training.setter
    def training(self, mode: bool) -> None:
        """Nothing: `train` sets the model's, and nn.Module's constructor has none to set yet."""

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002 - as nn.Module has it
        """Set the model's mode."""
        self._parts["model"].train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._parts["model"], name)

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """The model's own result, compiled or not; a mistake in the model shows as its own error."""
        if self._guard.failed:
            return self._parts["model"](*arguments, **options)
        try:
            return self._parts["compiled"](*arguments, **options)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            result = self._parts["model"](*arguments, **options)
            self._guard.give_up(error)
            return result
