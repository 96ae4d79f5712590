"""What a draft checkpoint is to the rest of the builder: a spec, tensors by our names, and what was assumed of it.

Tensor names (float32; linear weights are [out, in]): ``fc.weight`` [d, 3 d_target], ``fc.bias``,
``fc_input_norm.weight`` [3 d_target] or ``fc_norm.{i}.weight`` [d_target], ``embedding_norm.weight``,
``hidden_norm.weight``,
``q_proj|k_proj|v_proj|o_proj.weight`` (``.bias``), ``mlp_norm.weight``, ``gate_proj|up_proj|down_proj.weight``,
``norm.weight``, ``embed_tokens.weight`` [V, d], ``lm_head.weight`` [head_vocab_size, d].
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from draftsmith.builder.spec.draft import DraftSpec
from draftsmith.builder.spec.ranking import Ranking

DraftFormat = Literal["eagle3", "specforge", "speculators", "modelopt", "specvocab"]


class DraftWeights(Protocol):
    """Tensors by our names."""

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """One tensor as float32, a new array; raises ``CheckpointError`` where it is missing, NaN or infinite."""

    def close(self) -> None:
        """Unmap the files."""


@dataclass(slots=True, kw_only=True)
class DraftCheckpoint:
    """An opened draft.

    ``target_ids``: int32 [head_vocab_size], the target id of each row of a subset head, None where the head has all
    rows. ``ranking``: the speculative vocabulary that came with it, or None. ``choices``: a sentence for each default
    that was taken and each guess, for ``inspect`` and the log. ``target_sha256``: the target's checksum
    (``hash_checkpoint``) that the draft was trained for, None where the file does not say.
    """

    path: Path
    format: DraftFormat
    spec: DraftSpec
    weights: DraftWeights
    target_ids: npt.NDArray[np.int32] | None = None
    ranking: Ranking | None = None
    choices: list[str] = field(default_factory=list)
    target_sha256: str | None = None
