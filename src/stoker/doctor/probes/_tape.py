"""What the probes write on: one list of spans, and what the loop is in at the moment.

Probes run inside the user's loop, so a tape costs an attribute or an append each time. Everything
that takes thought is done with the spans afterwards, in `_steps`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.doctor._record import Stage

Clock = Callable[[], int]
MAX_SPANS = 2_000_000  # some 200 MB: the first tens of thousands of steps of a long run


class Tape:
    """Spans of the loop's thread, as plain tuples in the layout of `_steps.Span`."""

    __slots__ = (
        "backward_depth",
        "clock",
        "forward_depth",
        "forwarded",
        "has_optimized",
        "is_open",
        "last_pointers",
        "now",
        "num_method_calls",
        "optimizer_begin",
        "optimizer_depth",
        "own",
        "pointers",
        "rest",
        "spans",
        "stage",
        "stepped",
        "thread",
    )

    def __init__(self, clock: Clock) -> None:
        self.clock = clock  # of the host
        self.now: Clock = clock  # that, or one that also marks the accelerator's time
        self.spans: list[tuple[Any, ...]] = []
        self.is_open = True
        self.thread = get_ident()
        self.stage: Stage | None = None  # the stack sampler asks for it
        self.rest: Stage | None = None  # what the loop is in, when no probe claims it
        self.has_optimized = False  # an optimizer has stepped, ever
        self.stepped = False  # there was an optimizer step since the last boundary
        self.forward_depth = self.backward_depth = self.optimizer_depth = 0
        self.forwarded = False  # a forward pass was seen since the last batch was given
        self.optimizer_begin = 0
        self.pointers: set[int] = set()  # storages of the last two batches, and of copies of them
        self.last_pointers: set[int] = set()
        self.own: list[int] = []  # ns that the probe of each next() took beside next()
        self.num_method_calls = 0  # of the Tensor methods that may copy

    def give(self, pointers: set[int]) -> None:
        """Remember a batch that the loop was given. Frameworks fetch one ahead, hence two."""
        self.pointers = self.last_pointers | pointers
        self.last_pointers = pointers
        self.forwarded = False


class Swaps(ExitStack):
    """Attributes of classes and modules, replaced until it is closed; the last goes first."""

    def swap(self, owner: Any, name: str, value: Any) -> Any:
        """Replace an attribute; gives what a lookup gave before."""
        before = getattr(owner, name)
        own = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self.callback(_put_back, owner, name, own)
        return before

    def enter(self, manager: AbstractContextManager[Any]) -> Any:
        """`enter_context`, under a name that reads beside `swap`."""
        return self.enter_context(manager)


_ABSENT = object()


def _put_back(owner: Any, name: str, own: object) -> None:
    if own is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, own)
