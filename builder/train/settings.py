"""What a training run is asked to do. Everything that changes its result is here and is written into its folder."""

from dataclasses import asdict, dataclass
from typing import Any

from ..errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """``text_tokens`` of text in rows of ``length`` tokens, written ``text_batch`` rows at a time; ``long_share`` of
    them in rows of ``long_length`` (for which as many fewer rows make a batch).

    A step takes ``batch`` rows on each device and measures the loss at ``loss_rows`` of their positions, in
    ``num_steps`` simulated draft steps of which each counts ``step_decay`` times the one before and is measured at so
    many times fewer positions. Training ends after
    ``max_steps`` steps or ``max_seconds``, whichever comes first; the cosine follows whichever is nearer. The ranking
    (``rank``, ``num_candidates``) joins the loss with ``ranking_weight`` from ``ranking_start`` of the run on, and is
    then trained alone for ``ranking_steps`` steps or ``ranking_seconds``.
    """

    text_tokens: int
    text_batch: int
    length: int
    long_length: int
    long_share: float
    text_seconds: float
    batch: int
    loss_rows: int
    num_steps: int
    step_decay: float
    learning_rate: float
    ranking_learning_rate: float
    warmup_steps: int
    weight_decay: float
    max_steps: int
    max_seconds: float
    intermediate_size: int
    rank: int
    num_candidates: int
    ranking_weight: float
    ranking_start: float
    ranking_steps: int
    ranking_seconds: float
    held_out_rows: int
    save_seconds: float
    seed: int

    def __post_init__(self) -> None:
        for name in ("text_tokens", "text_batch", "batch", "loss_rows", "num_steps", "max_steps", "rank"):
            if getattr(self, name) < 1:
                option = "tokens" if name == "text_tokens" else name.replace("_", "-")
                raise UsageError(f"--{option}", expected="at least 1", found=str(getattr(self, name)))
        if self.length < self.num_steps + 4:
            raise UsageError("--length", expected=f"at least {self.num_steps + 4}", found=str(self.length))
        if self.long_length < self.length:
            raise UsageError("--long-length", expected=f"at least --length, {self.length}", found=str(self.long_length))
        if not 0 <= self.long_share < 1:
            raise UsageError("--long-share", expected="from 0 to below 1", found=str(self.long_share))
        if not 0 < self.learning_rate < 1:
            raise UsageError("--learning-rate", expected="between 0 and 1", found=str(self.learning_rate))

    @property
    def max_length(self) -> int:
        """Tokens of the longest rows."""
        return self.long_length if self.long_share else self.length

    @property
    def batch_tokens(self) -> int:
        """Tokens of a step on one device."""
        return self.batch * self.length

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)
