"""Chooses how one linear's activations are rounded: how many 8-bit planes, their step, and factors on its channels.

What a rounding costs is estimated as KL per token (nats) between the model with and without it, to second order:
half the mean of (gradient x error) squared, where the gradient is that of the log-probability of tokens drawn from the
model itself (the Fisher information), so outliers count for what they do to the output and not for their size.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .calibration import SeenLinear
from .codes import MAX_CODE
from .scheme import PLANE_STEPS

FloatArray = npt.NDArray[np.float32]
MAX_PLANES = 3
EXPONENTS = (0.0, 0.5, 0.75, 1.0)
"""Channel factors tried: the channel's largest magnitude to this power. 1 gives all channels the same range."""
REACHES = (0.5, 0.7, 0.85, 1.0, 1.25, 1.6, 2.0)
"""Ranges of a single plane tried, as multiples of the largest value seen; what lies beyond saturates."""
WIDE_REACHES = (4.0, 16.0)
"""Ranges of two and more planes."""
NEGLIGIBLE_KL = 2e-6
"""The widest range is taken that costs no more than this above the best: other text may hold larger values."""
COMPENSATION = 0.5
"""What is left of the weights' rounding error after compensation (measured: 0.3 to 0.6)."""
_SMALLEST = 1e-3
_COLUMNS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Inputs of a linear on calibration text.

    ``x`` and ``grad_x`` [M, d_in], ``grad_y`` [M, d_out]: inputs and gradients of a sample. ``channel_max`` [d_in]:
    largest magnitudes over all text, the same for channels that must share a factor. ``other_max``: without the sample,
    so that what a range costs is judged on text that it was not taken from.
    """

    x: FloatArray
    grad_x: FloatArray
    grad_y: FloatArray
    channel_max: FloatArray
    other_max: FloatArray


def observe(seen: SeenLinear) -> Observed:
    """What calibration saw."""
    return Observed(
        x=seen.x,
        grad_x=seen.gradients.x,
        grad_y=seen.gradients.y,
        channel_max=seen.channel_max,
        other_max=seen.other_max,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """``planes`` of ``step`` for inputs divided by ``factors`` [d_in]; estimated KL per token of both roundings."""

    planes: int
    step: float
    exponent: float
    factors: FloatArray
    activation_kl: float
    weight_kl: float

    @property
    def kl(self) -> float:
        """Both together."""
        return self.activation_kl + self.weight_kl


def choose(weight: FloatArray, observed: Observed, allowance: float) -> Choice:
    """The fewest planes whose activations cost at most ``allowance``; the most planes where none does.

    ``weight``: float32 [d_in, d_out].
    """
    weight_kls = {exponent: weight_kl(weight, observed, exponent) for exponent in EXPONENTS}
    least = min(weight_kls.values())
    planes = 1
    while True:
        tried = [_try(observed, planes, exponent, weight_kls[exponent]) for exponent in EXPONENTS]
        best = min(tried, key=lambda choice: choice.kl)
        if best.kl - least <= allowance or planes == MAX_PLANES:
            return best
        planes += 1


def relative_cost(planes: int, num_inputs: int, num_outputs: int) -> float:
    """What ``planes`` cost beyond one, in elements touched (an operator counts as a thousand)."""
    if planes == 1:
        return 0.0
    return 6000 + 3 * num_inputs + 3 * num_outputs + (planes - 2) * (3000 + 3 * num_inputs + num_outputs)


def channel_factors(channel_max: FloatArray, exponent: float) -> FloatArray:
    """[d_in], mean 1 on a logarithmic scale; channels that are (nearly) always zero get the smallest factor."""
    largest = float(channel_max.max())
    if exponent == 0 or largest == 0:
        return np.ones_like(channel_max)
    factors = np.maximum(channel_max, _SMALLEST * largest).astype(np.float64) ** exponent
    return np.asarray(factors / np.exp(np.log(factors).mean()), np.float32)


def _try(observed: Observed, planes: int, exponent: float, weights: float) -> Choice:
    """The best range for ``planes``, judged on text that the range was not taken from."""
    known = channel_factors(observed.other_max, exponent)
    estimate = _single_plane_kls if planes == 1 else _many_planes_kls
    kls = estimate(observed, known, planes)
    reach = max(r for r, kl in kls.items() if kl <= min(kls.values()) + NEGLIGIBLE_KL)
    factors = channel_factors(observed.channel_max, exponent)
    return Choice(
        planes=planes,
        step=_step(observed.channel_max / factors, reach, planes),
        exponent=exponent,
        factors=factors,
        activation_kl=kls[reach],
        weight_kl=weights,
    )


def _step(channel_max: FloatArray, reach: float, planes: int) -> float:
    """Of the last plane, so that all planes together hold ``reach`` times the largest value."""
    return float(reach * max(float(channel_max.max()), 1e-6) / (MAX_CODE * PLANE_STEPS ** (planes - 1)))


def _single_plane_kls(observed: Observed, factors: FloatArray, planes: int) -> dict[float, float]:
    """KL by reach, from the errors themselves."""
    scaled = observed.x / factors
    sensitivity = observed.grad_x * factors
    kls = {}
    for reach in REACHES:
        step = np.float32(_step(observed.other_max / factors, reach, planes))
        error = np.clip(np.rint(scaled / step), -MAX_CODE - 1, MAX_CODE)
        error *= step
        error -= scaled
        error *= sensitivity
        kls[reach] = 0.5 * float(np.vdot(error, error)) / len(scaled)
    return kls


def _many_planes_kls(observed: Observed, factors: FloatArray, planes: int) -> dict[float, float]:
    """KL by reach: evenly spread rounding errors, and what lies beyond the reach."""
    sensitivity = np.square(observed.grad_x * factors)
    total = float(sensitivity.sum()) / len(sensitivity)
    size = np.abs(observed.x / factors)
    kls = {}
    for reach in WIDE_REACHES:
        step = _step(observed.other_max / factors, reach, planes)
        beyond = np.maximum(size - np.float32(step * MAX_CODE * PLANE_STEPS ** (planes - 1)), 0)
        missed = float(np.vdot(np.square(beyond), sensitivity)) / len(size)
        kls[reach] = 0.5 * (total * step**2 / 12 + missed)
    return kls


def weight_kl(weight: FloatArray, observed: Observed, exponent: float) -> float:
    """What rounding the weights costs once compensated, were all rounding errors independent."""
    factors = channel_factors(observed.other_max, exponent)
    columns = range(0, weight.shape[1], _COLUMNS)
    largest = [np.abs(weight[:, start : start + _COLUMNS] * factors[:, None]).max(axis=0) for start in columns]
    steps = np.concatenate(largest) / MAX_CODE
    inputs = np.sum(np.square(observed.x / factors), axis=1)  # [M]
    outputs = np.square(observed.grad_y) @ np.square(steps)  # [M]
    return COMPENSATION * 0.5 * float(np.mean(inputs * outputs)) / 12
