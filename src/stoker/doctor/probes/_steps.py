"""From spans of time to steps and pauses. Pure: no clock, no torch.

The probes write one span for each thing they saw; spans of one thread nest. A step begins when the
loop asks for the first batch after an optimizer step, and lasts until it does so again: logging after
`optimizer.step()` is still part of it. What lies between the end of a loader and its first batch in
the next epoch, and all of a loop without backward passes, is a pause and no step's.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

from stoker.doctor._record import STAGES, Pause, Phase, Stage, Step

Kind = Literal[
    "epoch",  # iter(loader)
    "next",  # next(iterator) that gave a batch
    "stop",  # next(iterator) that gave none
    "copy",
    "augment",
    "forward",
    "backward",
    "optimizer",
    "aside",  # our own doing between two steps: nobody's time
]
STAGE_OF: dict[str, Stage] = {
    "next": "wait",
    "copy": "copy",
    "augment": "augment",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
}
PHASES = ("warmup", "normal", "host", "device")  # steps of any other phase are not kept


class Span(NamedTuple):
    """Something that took time in the loop's thread; the probes append plain tuples of this layout."""

    kind: Kind
    begin: int  # ns
    end: int
    loader: int = -1
    epoch: int = -1  # of that loader
    number: int = -1  # of the batch in its epoch
    ready: bool = False
    blocked: bool = False
    grad: bool = True  # next() was called with gradients enabled
    num_samples: int | None = None
    cpu: int = 0  # ns, of the process, at the span's begin (an optimizer's, a backward pass's: at its end)
    optimizer: int = 0  # which one
    cpu_end: int = 0  # at the end of an "aside"


class LoopLoader(NamedTuple):
    """What telling steps apart needs to know of a loader."""

    name: str
    num_workers: int


def training_epochs(spans: Sequence[Span]) -> set[tuple[int, int]]:
    """The (loader, epoch) pairs whose batches were trained on.

    A batch was, if a backward pass follows before its own loader is asked again, and before another
    loader is asked after a forward pass (as when one batch is validated on in the middle of a step).
    """
    found: set[tuple[int, int]] = set()
    waiting: dict[tuple[int, int], bool] = {}  # batches without a verdict: has a forward pass been seen?
    for span in in_order(spans):
        key = (span.loader, span.epoch)
        if span.kind == "backward":
            found.update(waiting)
            waiting.clear()
        elif span.kind == "forward":
            waiting = dict.fromkeys(waiting, True)
        elif span.kind == "epoch":
            waiting.clear()
        elif span.kind in {"next", "stop"}:
            waiting = {other: False for other, seen in waiting.items() if other != key and not seen}
            if span.kind == "next" and span.grad:
                waiting[key] = False
    return found


def find_steps(
    spans: Sequence[Span],
    *,
    phases: Sequence[tuple[int, str]],
    loaders: Mapping[int, LoopLoader],
    origin: int,
    forward_since: int | None,
) -> tuple[list[Step], list[Pause]]:
    """Steps and pauses in the order of time.

    Args:
        spans: of one thread, in any order.
        phases: when each began, in order; steps of phases that a record does not know are left out.
        loaders: by the number that spans refer to.
        origin: zero of the record's time, ns.
        forward_since: when calls of modules began to be seen; a step before it has no such stage.
    """
    ordered = in_order(spans)
    cutter = _Cutter(ordered, loaders)
    parts = cutter.cut()
    claims = exclusive(ordered)
    seen = {STAGE_OF[span.kind] for span in ordered if span.kind in STAGE_OF}
    begins = [begin for begin, _ in phases]
    steps: list[Step] = []
    pauses: list[Pause] = []
    position = 0
    for part in parts:
        position, stages = _stages(claims, position, part.begin, part.end)
        phase = phases[max(0, bisect_right(begins, part.begin) - 1)][1] if phases else "normal"
        begin_s, end_s = (part.begin - origin) / 1e9, (part.end - origin) / 1e9
        if part.stepped:
            if phase not in PHASES:
                continue
            observed = set(seen)
            if forward_since is None or part.begin < forward_since:
                observed -= {"forward", "augment"}
            if not part.waits:
                observed -= {"wait"}
            steps.append(_step(part, cast("Phase", phase), begin_s, end_s, stages, observed, cutter))
        elif phase in {"warmup", "normal"} and part.end > part.begin:
            name = loaders[part.loader].name if part.loader in loaders else None
            kind = part.kind if part.kind != "work" else "other"
            pauses.append(Pause(kind, begin_s, end_s, name))
    return steps, pauses


def in_order(spans: Sequence[Span]) -> list[Span]:
    """By their begin; of several, those without a length first, then the outermost."""
    return sorted(spans, key=lambda span: (span.begin, span.end > span.begin, -span.end))


def exclusive(spans: Sequence[Span]) -> list[tuple[int, int, Stage]]:
    """Disjoint pieces of time with the innermost stage that claims each, in order.

    `spans` are in the order of `in_order`. An optimizer that calls a closure does not claim
    the passes inside it.
    """
    pieces: list[tuple[int, int, Stage]] = []
    stack: list[tuple[int, Stage]] = []  # (end, stage), outermost first
    cursor = 0

    def claim(until: int) -> None:
        nonlocal cursor
        while stack:
            end, stage = stack[-1]
            stop = min(end, until)
            if stop > cursor:
                pieces.append((cursor, stop, stage))
                cursor = stop
            if end > until:
                break
            stack.pop()
        cursor = max(cursor, until)

    for span in spans:
        if span.kind not in STAGE_OF:
            continue
        claim(span.begin)
        end = min(span.end, stack[-1][0]) if stack else span.end
        if end > span.begin:
            stack.append((end, STAGE_OF[span.kind]))
    while stack:
        claim(stack[-1][0])
    return pieces


@dataclass
class _Part:
    """A piece of the loop's time, from one cut to the next."""

    kind: Literal["work", "epoch start", "validation", "other"]
    begin: int
    cpu: int
    loader: int = -1
    end: int = 0
    end_cpu: int = 0
    stepped: bool = False
    waits: list[int] = field(default_factory=list)
    batches: Counter[int] = field(default_factory=Counter)
    num_samples: dict[int, int | None] = field(default_factory=dict)

    def take(self, span: Span, *, waited: bool) -> None:
        self.batches[span.loader] += 1
        before = self.num_samples.get(span.loader, 0)
        known = before is not None and span.num_samples is not None
        self.num_samples[span.loader] = cast("int", before) + cast("int", span.num_samples) if known else None
        if waited:
            self.waits.append(span.end - span.begin)


class _Cutter:
    """Cuts the loop's time where a step, an epoch or a validation begins or ends."""

    def __init__(self, spans: Sequence[Span], loaders: Mapping[int, LoopLoader]) -> None:
        self.spans = spans
        self.loaders = loaders
        self.training = training_epochs(spans)
        optimizers = [span for span in spans if span.kind == "optimizer"]
        self.without_optimizer = not optimizers
        self.marker = optimizers[0].optimizer if optimizers else 0
        self.parts: list[_Part] = []
        self.part: _Part | None = None
        self.starting: set[tuple[int, int]] = set()  # epochs whose first batch has not come
        self.last_loader = -1
        self.latest = 0  # cut; none lies before it

    def cut(self) -> list[_Part]:
        for span in self.spans:
            if span.kind == "aside":
                self._end(span.begin, span.cpu)
                self.latest = max(self.latest, span.end)
                self.part = _Part("work", self.latest, span.cpu_end) if self.part else None
            elif span.kind in {"epoch", "next", "stop"}:
                if (span.loader, span.epoch) in self.training:
                    self._train(span)
                else:
                    self._validate(span)
            elif self._updates(span):
                self._mark(span)
        if self.part is not None and self.part.stepped and self.spans:
            last = max(self.spans, key=lambda span: span.end)  # what came after it was not seen
            self._end(last.end, last.cpu or self.part.cpu)
        return self.parts

    def _train(self, span: Span) -> None:
        key = (span.loader, span.epoch)
        if span.kind == "epoch":
            if self.part is None or self.part.kind != "epoch start":
                self._begin("epoch start", span.begin, span.cpu, span.loader)
            self.starting.add(key)
        elif span.kind == "stop":
            # its own pause, under the loader's name: this is where workers are ended
            self._begin("other", span.begin, span.cpu, span.loader)
            self._begin("other", span.end, span.cpu, -1)
        else:
            self._batch(span, is_first=key in self.starting)
            self.starting.discard(key)
            self.last_loader = span.loader

    def _batch(self, span: Span, *, is_first: bool) -> None:
        # in-process loaders make the first batch of an epoch as any other: a step's wait, no start-up
        starts_up = is_first and self.loaders[span.loader].num_workers > 0
        if starts_up and self.part and self.part.kind == "epoch start":
            if len(self.starting) == 1:
                self._begin("work", span.end, span.cpu, span.loader)
            if self.part:
                self.part.take(span, waited=False)
            return
        if self.part is None or self.part.stepped or self.part.kind != "work":
            self._begin("work", span.begin, span.cpu, span.loader)
        assert self.part is not None
        self.part.take(span, waited=True)

    def _validate(self, span: Span) -> None:
        if self.part is None or self.part.kind != "validation":
            self._begin("validation", span.begin, span.cpu, span.loader)
        if span.kind == "stop":
            self._begin("other", span.end, span.cpu, -1)

    def _updates(self, span: Span) -> bool:
        if span.kind == "optimizer":
            return bool(self.training) or span.optimizer == self.marker
        return span.kind == "backward" and self.without_optimizer

    def _mark(self, span: Span) -> None:
        if self.part:
            self.part.stepped = True
        if not self.training:  # no loader tells where a step begins: this does
            self._begin("work", span.end, span.cpu, -1)

    def _begin(
        self,
        kind: Literal["work", "epoch start", "validation", "other"],
        time: int,
        cpu: int,
        loader: int,
    ) -> None:
        time = max(time, self.latest)
        carried = self.part if self.part and self.part.kind == "epoch start" else None
        self._end(time, cpu)
        self.part = _Part(kind, time, cpu, loader)
        if carried and kind == "work":  # batches of loaders that are iterated together
            self.part.batches, self.part.num_samples = carried.batches, carried.num_samples

    def _end(self, time: int, cpu: int) -> None:
        self.latest = time = max(time, self.latest)
        if self.part is not None and (self.part.kind != "work" or self.part.stepped):
            self.part.end, self.part.end_cpu = time, cpu
            self.parts.append(self.part)


def _stages(
    claims: list[tuple[int, int, Stage]], position: int, begin: int, end: int
) -> tuple[int, dict[Stage, int]]:
    """Time by stage between two moments; `position` is where to look on from."""
    found: dict[Stage, int] = dict.fromkeys(STAGES, 0)
    while position < len(claims) and claims[position][1] <= begin:
        position += 1
    at = position
    while at < len(claims) and claims[at][0] < end:
        piece_begin, piece_end, stage = claims[at]
        found[stage] += min(piece_end, end) - max(piece_begin, begin)
        at += 1
    found["other"] = end - begin - sum(found.values())
    return position, found


def _step(
    part: _Part,
    phase: Phase,
    begin_s: float,
    end_s: float,
    stages: dict[Stage, int],
    observed: set[Stage],
    cutter: _Cutter,
) -> Step:
    fed = part.batches.most_common(1)
    loader, num_batches = fed[0] if fed else (cutter.last_loader, 1)
    unseen = sum(time for stage, time in stages.items() if stage not in observed and stage != "other")
    times: dict[Stage, float] = {
        stage: stages[stage] / 1e9 for stage in STAGES if stage in observed and stage != "other"
    }
    times["other"] = (stages["other"] + unseen) / 1e9
    return Step(
        phase=phase,
        begin_s=begin_s,
        end_s=end_s,
        stages=times,
        num_batches=num_batches,
        num_samples=part.num_samples.get(loader),
        loader=cutter.loaders[loader].name if loader in cutter.loaders else None,
        waits=tuple(wait / 1e9 for wait in part.waits),
        cpu_s=max(0, part.end_cpu - part.cpu) / 1e9,
    )
