"""Where the time of training goes: waiting for data, copying, computing."""

from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, Self


@dataclass
class StepTimes:
    """Seconds of the host, added up over steps.

    data_s: in the loader's ``next``. High: the loader does not keep up.
    copy_s: in starting copies to the device, or, from memory that is not pinned, in making them.
    total_s: all of it; what is neither data nor copy is computing, or waiting for the device to.
    """

    data_s: float = 0.0
    copy_s: float = 0.0
    total_s: float = 0.0
    num_samples: int = 0
    num_steps: int = 0

    @property
    def samples_per_s(self) -> float:
        """Throughput; 0 before the first step."""
        return self.num_samples / self.total_s if self.total_s > 0 else 0.0

    @property
    def data_wait_fraction(self) -> float:
        """0: the loader was always ahead; 1: nothing but waiting."""
        return self.data_s / self.total_s if self.total_s > 0 else 0.0

    @property
    def copy_fraction(self) -> float:
        """The share of copies."""
        return self.copy_s / self.total_s if self.total_s > 0 else 0.0

    def add(self, data_s: float, copy_s: float, total_s: float, num_samples: int) -> None:
        """Take in a step."""
        self.data_s += data_s
        self.copy_s += copy_s
        self.total_s += total_s
        self.num_samples += num_samples
        self.num_steps += 1

    def since(self, earlier: "StepTimes") -> "StepTimes":
        """What was added after `earlier`."""
        return StepTimes(*(now - then for now, then in zip(astuple(self), astuple(earlier), strict=True)))

    def plus(self, other: "StepTimes") -> "StepTimes":
        """Both together."""
        return StepTimes(*(mine + more for mine, more in zip(astuple(self), astuple(other), strict=True)))

    def copy(self) -> "StepTimes":
        """As it is now."""
        return replace(self)

    def summary(self) -> dict[str, float]:
        """For logs; fractions of the whole time that add up to 1."""
        return {
            "samples_per_s": self.samples_per_s,
            "data_wait_fraction": self.data_wait_fraction,
            "copy_fraction": self.copy_fraction,
            "compute_fraction": 1 - self.data_wait_fraction - self.copy_fraction if self.total_s > 0 else 0.0,
        }

    def state(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The same again."""
        return cls(**state)
