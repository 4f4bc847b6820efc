"""The order of an epoch: a function from position to sample, of (seed, epoch) alone.

Ranks and batch sizes take slices of it, so that none of them changes it.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stoker.errors import UsageError
from stoker.loader._permutation import Permutation, derive, mix

_SHUFFLED, _RUNS, _POOLS, _DRAWS = range(4)  # purposes of a key


class Order(Protocol):
    """Which sample stands at which position of an epoch."""

    length: int  # positions in an epoch

    def at(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at these positions."""


class Sequential:
    """Every sample once, in the store's order."""

    def __init__(self, num_samples: int) -> None:
        self.length = num_samples

    def at(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:  # noqa: ARG002
        """The position itself."""
        return positions


class Shuffled:
    """Every sample once, each order as likely as another."""

    def __init__(self, num_samples: int, seed: int) -> None:
        self.length = num_samples
        self._seed = seed

    def at(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """A keyed permutation of the whole."""
        return Permutation(self.length, derive(self._seed, epoch, _SHUFFLED))(positions)


class QuasiRandom:
    """Every sample once, in long runs: for data larger than memory.

    Runs of ``run_length`` neighbouring samples are shuffled; ``pool`` runs at a time are read
    together and their samples shuffled among each other. A batch then mixes samples of up to
    ``pool`` places of the store, and each of those places is read in one go.
    """

    def __init__(self, num_samples: int, seed: int, *, run_length: int, pool: int) -> None:
        if run_length < 1 or pool < 1:
            raise UsageError(f"run_length and pool must be at least 1, got {run_length} and {pool}")
        self.length = num_samples
        self._seed = seed
        self._run = run_length
        num_runs = -(-num_samples // run_length)
        self._pool = min(pool, num_runs)
        self._num_runs = -(-num_runs // self._pool) * self._pool  # whole pools

    def at(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """A permutation of whole pools, walked until it falls inside the samples."""
        runs = Permutation(self._num_runs, derive(self._seed, epoch, _RUNS))
        found = self._pass(epoch, runs, positions)
        outside = np.flatnonzero(found >= self.length)
        while len(outside):
            found[outside] = self._pass(epoch, runs, found[outside])
            outside = outside[found[outside] >= self.length]
        return found

    def _pass(self, epoch: int, runs: Permutation, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        pool_size = self._pool * self._run
        pool, inside = positions // pool_size, positions % pool_size
        shuffled = np.empty_like(inside)
        for number in np.unique(pool):
            here = pool == number
            within = Permutation(pool_size, derive(self._seed, epoch, _POOLS, int(number)))
            shuffled[here] = within(inside[here])
        run = runs(pool * self._pool + shuffled // self._run)
        return run * self._run + shuffled % self._run


class Weighted:
    """Samples drawn with replacement, each as often as its weight says.

    Holds the running sum of the weights: 8 bytes a sample.
    """

    def __init__(self, weights: NDArray[np.float64], seed: int, *, length: int) -> None:
        if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
            raise UsageError("weights must be finite numbers of at least 0, one a sample")
        if weights.sum() <= 0:
            raise UsageError("weights must not all be 0: there is nothing to draw")
        self.length = length
        self._seed = seed
        self._sums = np.cumsum(weights, dtype=np.float64)

    def at(self, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """A keyed draw for each position."""
        key = np.uint64(derive(self._seed, epoch, _DRAWS))
        uniform = (mix(mix(positions.astype(np.uint64) + key) ^ key) >> np.uint64(11)) / 2.0**53
        drawn = np.searchsorted(self._sums, uniform * self._sums[-1], side="right")
        numbers: NDArray[np.int64] = np.minimum(drawn, len(self._sums) - 1)
        return numbers


def balanced_weights(labels: NDArray[np.generic]) -> NDArray[np.float64]:
    """Weights that draw every class equally often."""
    _, code, counts = np.unique(labels, return_inverse=True, return_counts=True)
    weights: NDArray[np.float64] = (1.0 / counts)[code]
    return weights
