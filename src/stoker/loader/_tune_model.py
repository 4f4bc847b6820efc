"""How fast training goes with given threads and read-ahead: a small model, fitted to a few trials. Pure.

reading   A batch takes ``serial + shared / readers`` seconds, readers being the threads that have a
          block to read: no more than blocks ahead. Two trials that only read tell both parts.
step      Takes what it took with a batch that lay ready.
waiting   With even times, what reading takes longer than the step. With uneven ones also the chance
          that the blocks ahead run out: that of a queue of n places whose producer takes y and
          consumer x, p = (1 - x/y) / (1 - (x/y)^(n+1)), times y. In between, by how uneven they are.
cores     Never faster than all processor time of a batch, spread over them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

CLOSE_ENOUGH = 1.02  # what is slower by no more than this, but takes fewer threads and less memory, is better

_EASILY = 0.7  # of a step's time without waiting: reading that takes less keeps up


@dataclass(frozen=True)
class Reading:
    """A trial that only read: seconds a batch."""

    seconds: float
    cpu_s: float
    handover_s: float = 0.0  # of it, what a batch takes that lies ready
    unevenness: float = 0.0  # standard deviation over mean, of whole blocks


@dataclass(frozen=True)
class Costs:
    """What a batch costs here. Seconds a batch."""

    step_s: float  # the step alone
    step_cpu_s: float
    serial_s: float  # of reading: more threads do not shorten it
    shared_s: float  # of reading: threads share it
    read_cpu_s: float
    handover_s: float  # to get a batch that lies ready
    unevenness: float
    cores: int
    block_bytes: int
    consumer_reads: bool  # at memory speed, whoever waits for a batch reads as well

    def memory_bytes(self, num_ahead: int) -> int:
        """For so many blocks ahead and the one that is in use."""
        return (num_ahead + 1) * self.block_bytes

    def most_ahead(self, num_workers: int, memory_bytes: int) -> int:
        """Blocks that a loader reads ahead with these settings."""
        return max(1, min(2 * num_workers, memory_bytes // self.block_bytes - 1))


@dataclass(frozen=True)
class Prediction:
    """Seconds a batch, from one step to the next, and how much of it is waiting for data."""

    step_s: float
    wait_s: float


def threads_of(num_workers: int, *, consumer_reads: bool) -> int:
    """Threads beside the consumer: at memory speed it is one of the workers."""
    return max(1, num_workers - 1) if consumer_reads else max(1, num_workers)


def fit(
    readings: Mapping[int, Reading],
    *,
    step_s: float,
    step_cpu_s: float,
    cores: int,
    block_bytes: int,
    consumer_reads: bool,
) -> Costs:
    """The costs out of trials that only read, by their number of workers.

    While only reading, the consumer waits, and so reads as well where it can. Trials with equally many
    readers say nothing of how these share the work: then they are taken to share all of it.
    """
    helps = 1 if consumer_reads else 0
    by_readers = {
        threads_of(num_workers, consumer_reads=consumer_reads) + helps: reading.seconds
        for num_workers, reading in readings.items()
    }
    fewest, most = min(by_readers), max(by_readers)
    slow, fast = by_readers[fewest], by_readers[most]
    if fewest == most:
        serial, shared = 0.0, fast * min(most, cores)
    else:
        shared = max(0.0, (slow - fast) / (1 / fewest - 1 / most))
        shared = min(shared, slow * fewest)
        serial = max(0.0, slow - shared / fewest)
    return Costs(
        step_s=step_s,
        step_cpu_s=step_cpu_s,
        serial_s=serial,
        shared_s=shared,
        read_cpu_s=min(reading.cpu_s for reading in readings.values()),
        handover_s=min(reading.handover_s for reading in readings.values()),
        unevenness=min(reading.unevenness for reading in readings.values()),
        cores=cores,
        block_bytes=block_bytes,
        consumer_reads=consumer_reads,
    )


def predict(costs: Costs, num_workers: int, num_ahead: int) -> Prediction:
    """A step with these settings."""
    reading, busy = reading_s(costs, num_workers, num_ahead), costs.step_s + costs.handover_s
    even = max(0.0, reading - busy)
    if costs.consumer_reads:  # what the step left to be shared, one more shares
        threads = min(threads_of(num_workers, consumer_reads=True), num_ahead)
        left = costs.shared_s - threads * max(0.0, busy - costs.serial_s)
        even = max(0.0, costs.serial_s - busy) + max(0.0, left / (threads + 1))
    uneven = min(1.0, costs.unevenness**2)
    starved = (1 - uneven) * even + uneven * chance_empty(busy, reading, num_ahead) * reading
    least = (costs.step_cpu_s + costs.read_cpu_s) / costs.cores
    starved = max(starved, least - busy, 0.0)
    return Prediction(busy + starved, costs.handover_s + starved)


def reading_s(costs: Costs, num_workers: int, num_ahead: int) -> float:
    """Seconds that reading a batch takes beside the step: only so many threads have a block to read."""
    readers = min(threads_of(num_workers, consumer_reads=costs.consumer_reads), num_ahead)
    return costs.serial_s + costs.shared_s / readers


def chance_empty(consumer_s: float, producer_s: float, num_places: int) -> float:
    """That a queue is empty when something is wanted: both times exponential, `num_places` between them."""
    if producer_s <= 0:
        return 0.0
    ratio = consumer_s / producer_s
    if ratio > 100:
        return 0.0
    if abs(ratio - 1) < 1e-6:
        return 1 / (num_places + 1)
    return float((1 - ratio) / (1 - ratio ** (num_places + 1)))


def choose(costs: Costs, *, max_workers: int, memory_bytes: int) -> tuple[int, int]:
    """The fewest workers, and of these the fewest blocks ahead, that come close to the fastest."""
    options = {
        (num_workers, num_ahead): predict(costs, num_workers, num_ahead).step_s
        for num_workers in range(1, max_workers + 1)
        for num_ahead in range(1, costs.most_ahead(num_workers, memory_bytes) + 1)
    }
    limit = min(options.values()) * CLOSE_ENOUGH
    return min(option for option, seconds in options.items() if seconds <= limit)


def max_workers(costs: Costs) -> int:
    """How many are worth a thought: one a core, more where reading is mostly waiting for storage."""
    reading = costs.serial_s + costs.shared_s
    if costs.consumer_reads or reading <= 0:
        return costs.cores
    waiting = max(0.0, 1 - costs.read_cpu_s / reading)
    return max(1, round(costs.cores * (1 + 3 * waiting)))


def corrected(costs: Costs, num_workers: int, num_ahead: int, measured: Prediction) -> Costs:
    """The costs that explain a trial with steps: the step beside reading, and reading beside the step."""
    changed = replace(costs, step_s=max(measured.step_s - measured.wait_s, 1e-9))
    extra = measured.wait_s - predict(changed, num_workers, num_ahead).wait_s
    if extra <= 0:
        return changed
    reading = reading_s(costs, num_workers, num_ahead)
    if reading < _EASILY * changed.step_s:  # it kept up: getting a batch that lies ready takes longer
        return replace(changed, handover_s=costs.handover_s + extra)
    scale = max(1.0, measured.step_s / reading)
    return replace(changed, serial_s=costs.serial_s * scale, shared_s=costs.shared_s * scale)
