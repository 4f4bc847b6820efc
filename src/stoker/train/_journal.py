"""What is written and shown of a run while it goes on: rows of the logs, progress, metrics.json."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.train._logs import Log
from stoker.train._measures import Value
from stoker.train._progress import Display, Silent
from stoker.train._summary import epoch_line, write_metrics
from stoker.train._timing import StepTimes

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a run stands."""

    epoch: int
    step: int
    num_updates: int
    learning_rate: float


class Journal:
    """Of one call of `fit`; ranks other than the first have one without logs, which shows nothing.

    Args:
        logs: where rows go to.
        metrics_path: of metrics.json, which is replaced after every epoch; None for none.
        show: whether progress is shown.
    """

    def __init__(self, logs: Sequence[Log], metrics_path: Path | None, *, show: bool) -> None:
        self._logs = logs
        self._metrics_path = metrics_path
        self._display = Display() if show else Silent()
        self._logged = StepTimes()  # of the epoch, when an interval was logged last
        self._said_not_finite = False

    @contextmanager
    def opened(self, *, step: int, epoch: int, num_steps: int | None) -> Iterator[None]:
        """A run of so many steps in all (None: nobody knows) starts there, or goes on."""
        with self._display as display:
            try:
                for log in self._logs:
                    log.begin(step, epoch)
                display.begin(step, num_steps)
                yield
            finally:
                for log in self._logs:
                    log.close()

    def begin_interval(self, times: StepTimes) -> None:
        """The next interval's times are those after these."""
        self._logged = times.copy()

    def interval(self, place: Place, loss: float, times: StepTimes) -> None:
        """Log the steps since the last interval; `times` are those of the epoch so far."""
        if not math.isfinite(loss) and not self._said_not_finite:
            self._said_not_finite = True
            warnings.warn(
                f"the loss is {loss} at step {place.step}; a lower learning rate or clip_norm may help",
                stacklevel=4,
            )
        row = {
            "kind": "interval",
            "epoch": place.epoch,
            "step": place.step,
            "num_updates": place.num_updates,
            "loss": loss,
            "learning_rate": place.learning_rate,
            **times.since(self._logged).summary(),
        }
        self.begin_interval(times)
        self._write(row)
        self.show(place, times, f", loss {loss:.4g}")

    def epoch(self, row: Row, epochs: int) -> None:
        """Log a row that `epoch_row` made, of an epoch out of so many."""
        self._write(row)
        self.line(epoch_line(row, epochs))

    def run(
        self,
        history: Sequence[Row],
        *,
        best: Mapping[str, Value],
        best_epoch: int | None,
        monitor: str,
        times: StepTimes,
        peak_memory_bytes: int,
    ) -> None:
        """Replace metrics.json, if there is a folder."""
        if self._metrics_path is not None:
            write_metrics(
                self._metrics_path,
                best=best,
                best_epoch=best_epoch,
                monitor=monitor,
                history=history,
                times=times,
                peak_memory_bytes=peak_memory_bytes,
            )

    def show(self, place: Place, times: StepTimes, more: str = "") -> None:
        """Show how far it is and how fast it goes."""
        detail = (
            f"epoch {place.epoch + 1}, {times.samples_per_s:,.0f} samples/s, "
            f"waiting for data {times.data_wait_fraction:.0%}{more}"
        )
        self._display.update(place.step, detail)

    def line(self, text: str) -> None:
        """Show a line that stays."""
        self._display.line(text)

    def _write(self, row: Row) -> None:
        for log in self._logs:
            log.write(row)


def epoch_row(
    place: Place,
    trained: Mapping[str, Value],
    evaluated: Mapping[str, Value] | None,
    times: StepTimes,
    peak_memory_bytes: int,
) -> Row:
    """An epoch as it is logged and kept."""
    return {
        "kind": "epoch",
        "epoch": place.epoch,
        "step": place.step,
        "num_updates": place.num_updates,
        **{f"train_{name}": value for name, value in trained.items()},
        **{f"val_{name}": value for name, value in (evaluated or {}).items()},
        "learning_rate": place.learning_rate,
        **times.summary(),
        "peak_memory_bytes": peak_memory_bytes,
    }
