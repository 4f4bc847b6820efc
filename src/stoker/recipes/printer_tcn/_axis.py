"""An axis of the printer, exactly: the error e (mm) that an acceleration a (mm/s²) of the reference makes.

    e'' = -(c/m) e' - (k/m) e - a,      h = c / 2m,   ω0² = k/m,   ωd² = ω0² - h²

At 100 samples a second a resonance of 88 Hz is far above what differences of neighbours can see, so e'' is
never approximated. With a linear between two samples, e moves from one to the next exactly by

    s(n+1) = p(Δ) + Φ (s(n) - p(0)),    s = (e, e'),   p(t) = (u + w t, w)
    w = -(a(n+1) - a(n)) / (ω0² Δ),     u = -(a(n) + 2h w) / ω0²

    Φ = e^{-hΔ} [ cos ωdΔ + h/ωd sin ωdΔ         sin ωdΔ / ωd         ]
                [ -ω0²/ωd sin ωdΔ         cos ωdΔ - h/ωd sin ωdΔ      ]

which is s(n+1) = Φ s(n) + g0 a(n) + g1 a(n+1). A matrix satisfies its own characteristic equation,
Φ² = tr(Φ) Φ - det(Φ), and so velocities, which nobody measures, drop out:

    e(n+2) = tr e(n+1) - det e(n) + b0 a(n+2) + b1 a(n+1) + b2 a(n)
    b0 = g1,   b1 = g0 + Φ g1 - tr g1,   b2 = Φ g0 - tr g0        (the first component of each)
"""

import cmath
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stoker.errors import UsageError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recurrence:
    """e(n+2) = trace e(n+1) - determinant e(n) + Σ weights[i] a(n+2-i)."""

    trace: float
    determinant: float
    weights: tuple[float, float, float]

    @property
    def gain(self) -> float:
        """What the weights add up to: divided by it, a residual in mm is an acceleration in mm/s²."""
        return sum(self.weights)


@dataclass(frozen=True)
class Axis:
    """A moving mass (kg) on a belt of some stiffness (N/m) and damping (N s/m)."""

    mass: float
    stiffness: float
    damping: float

    def __post_init__(self) -> None:
        if self.mass <= 0 or self.stiffness <= 0 or self.damping < 0:
            raise UsageError(f"an axis needs mass and stiffness above 0 and damping from 0 on, got {self}")

    def transition(self, rate: float) -> tuple[Floats, Floats, Floats]:
        """Φ [2, 2], g0 [2] and g1 [2] of a step of 1 / `rate` seconds."""
        step = 1 / rate
        decay_rate, square = self.damping / (2 * self.mass), self.stiffness / self.mass
        frequency = cmath.sqrt(square - decay_rate**2)
        sine = (cmath.sin(frequency * step) / frequency).real if abs(frequency) > 1e-9 else step
        cosine, decay = cmath.cos(frequency * step).real, math.exp(-decay_rate * step)
        phi = decay * np.array(
            [[cosine + decay_rate * sine, sine], [-square * sine, cosine - decay_rate * sine]], np.float64
        )
        gains = []
        for before, after in ((1.0, 0.0), (0.0, 1.0)):
            slope = -(after - before) / (square * step)
            start = -(before + 2 * decay_rate * slope) / square
            gains.append(np.array([start + slope * step, slope]) - phi @ np.array([start, slope]))
        return phi, gains[0], gains[1]

    def recurrence(self, rate: float) -> Recurrence:
        """The same without velocities."""
        phi, first, second = self.transition(rate)
        trace, determinant = float(np.trace(phi)), float(np.linalg.det(phi))
        weights = (
            float(second[0]),
            float(first[0] + (phi @ second)[0] - trace * second[0]),
            float((phi @ first)[0] - trace * first[0]),
        )
        return Recurrence(trace, determinant, weights)

    def simulate(self, acceleration: Floats, rate: float) -> Floats:
        """Errors and their velocities, [T, 2], from rest, of the reference's acceleration [T]."""
        phi, first, second = self.transition(rate)
        (p00, p01), (p10, p11) = phi.tolist()
        drive = np.outer(acceleration[:-1], first) + np.outer(acceleration[1:], second)
        error = velocity = 0.0
        states = [(error, velocity)]
        for push, kick in drive.tolist():
            error, velocity = p00 * error + p01 * velocity + push, p10 * error + p11 * velocity + kick
            states.append((error, velocity))
        return np.array(states)
