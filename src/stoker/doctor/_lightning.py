"""The doctor as a callback of a Lightning trainer."""

import importlib
import importlib.util
import sys
from contextlib import ExitStack
from typing import Any

from stoker.doctor._record import Record
from stoker.doctor._watch import watch
from stoker.errors import MissingExtraError

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


class DoctorCallback:
    """Watches `Trainer.fit`; its `record` is there when fitting is over.

        doctor = DoctorCallback()
        Trainer(callbacks=[doctor]).fit(model, loader)
        doctor.record

    Takes what `watch` takes. What it makes is a callback of the package that is in use, `lightning` or
    `pytorch_lightning`: each knows only its own.

    Raises:
        MissingExtraError: neither package is installed.
    """

    record: Record | None = None

    def __new__(cls, *, steps: int | None = None, warmup: int = 4) -> Any:
        kind = type(cls.__name__, (_Watching, _base()), {"__doc__": cls.__doc__})
        return kind(steps=steps, warmup=warmup)


class _Watching:
    def __init__(self, *, steps: int | None, warmup: int) -> None:
        super().__init__()
        self.record: Record | None = None
        self._options: dict[str, Any] = {"steps": steps, "warmup": warmup}
        self._stack = ExitStack()

    def on_fit_start(self, *_: Any) -> None:
        self.record = self._stack.enter_context(watch(**self._options))

    def teardown(self, *_: Any, **__: Any) -> None:
        self._stack.close()  # also after an exception, and twice

    def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
        record = self.record
        self._stack.close()
        if record is not None:
            record.ended, record.exit_code = "crashed", 1
            record.error = f"{type(exception).__name__}: {exception}"


def _base() -> type:
    loaded = [name for name in _PACKAGES if name in sys.modules]
    installed = [name for name in _PACKAGES if importlib.util.find_spec(name.split(".")[0])]
    for name in (*loaded, *installed):
        callback: type = importlib.import_module(name).Callback
        return callback
    raise MissingExtraError("the doctor's callback", extra="frameworks", library="lightning")
