"""How far a run is, by steps or by the clock, and the learning rate there."""

import math


def run_progress(step: int, max_steps: int, elapsed: float, max_seconds: float) -> float:
    """Share of the run that is done, 0 to 1: steps or seconds, whichever is further."""
    by_clock = elapsed / max_seconds if max_seconds > 0 else 0.0
    return min(1.0, max(step / max_steps, by_clock))


def learning_rate_factor(progress: float, step: int, warmup_steps: int) -> float:
    """Linear warm-up over steps, then a cosine over the run, down to 2 %."""
    warm = min(1.0, (step + 1) / max(1, warmup_steps))
    return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
