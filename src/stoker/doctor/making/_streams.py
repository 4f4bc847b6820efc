"""Whether a stream (an iterable data set) divides itself among workers, or gives each of them everything."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data._utils import worker as torch_worker

_END = object()


def divides_itself(dataloader: Any) -> bool | None:
    """Whether each worker gives a part: the stream asks how many there are, and the second gives something.

    It is begun once more, as the second of two workers would begin it. None where that does not tell: a
    `worker_init_fn` may divide it, and so may who asks for nothing but a worker's number.
    """
    if dataloader.worker_init_fn is not None:
        return None
    with _as_second_of_two(dataloader.dataset) as worker:
        try:
            first = next(iter(dataloader.dataset), _END)
        except Exception:  # noqa: BLE001 - the user's code; what it cannot do as a second worker is no fault
            return None
    if "num_workers" in worker.asked:
        return first is not _END
    return None if "id" in worker.asked else False


class _SecondOfTwo:
    """What `torch.utils.data.get_worker_info` gives to a worker; keeps what it was asked for."""

    def __init__(self, dataset: Any) -> None:
        self._facts = {"id": 1, "num_workers": 2, "seed": 1, "dataset": dataset}
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name not in self._facts:
            raise AttributeError(name)
        self.asked.add(name)
        return self._facts[name]


@contextmanager
def _as_second_of_two(dataset: Any) -> Iterator[_SecondOfTwo]:
    before, worker = torch_worker._worker_info, _SecondOfTwo(dataset)  # noqa: SLF001
    torch_worker._worker_info = worker  # type: ignore[assignment] # noqa: SLF001 - under whatever name it is asked
    try:
        yield worker
    finally:
        torch_worker._worker_info = before  # noqa: SLF001
