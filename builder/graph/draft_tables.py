"""Which matrix a draft embeds with and which its head multiplies with: its own, the target's, or rows of either."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..spec.draft import DraftSpec
from ..spec.target import ModelSpec
from .borrowed import StoredTensors
from .draft_heads import DraftHead
from .graph_builder import GraphBuilder
from .linear import Storage
from .vocabulary_tables import (
    FloatTable,
    NativeTable,
    borrow_float_table,
    borrow_native_table,
    store_float_table,
    store_native_table,
)

FloatArray = npt.NDArray[np.float32]
Table = FloatTable | NativeTable
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"


class ReadsTensors(Protocol):
    """The part of a source of weights that graphs need."""

    def read(self, name: str) -> FloatArray: ...


@dataclass(slots=True, kw_only=True)
class DraftTables:
    """Makes the tables of one draft; what the target's graph stored (``stored``, None for a draft alone) is not stored
    again."""

    graph: GraphBuilder
    spec: DraftSpec
    own: ReadsTensors
    target_spec: ModelSpec
    target: ReadsTensors
    stored: StoredTensors | None
    is_native: bool
    storage: Storage
    _copies: dict[str, Table] = field(default_factory=dict)

    def embedding(self) -> Table:
        """[V, d]."""
        if self.spec.own_embedding:
            return self._store("draft_embedding", self.own.read(EMBEDDING))
        return self._borrow("embedding")

    def head(self, head: DraftHead) -> Table | None:
        """[V, d], or [H, d] of a subset; None where the ranking's scores stand for logits."""
        if head.ranking is not None and not head.ranking.is_exact:
            return None
        if head.target_ids is not None:
            return self._store("draft_head", self._subset(head, head.target_ids))
        if self.spec.own_head:
            return self._store("draft_head", self.own.read(HEAD))
        return self._borrow(self._target_head)

    @property
    def _target_head(self) -> str:
        return "embedding" if self.target_spec.tied_head else "head"

    def _subset(self, head: DraftHead, target_ids: npt.NDArray[np.int32]) -> FloatArray:
        """[H, d]."""
        if not self.spec.own_head:
            return self.target.read(self._target_name(self._target_head))[target_ids]
        rows = self.own.read(HEAD)
        return rows if head.has_own_rows else rows[target_ids]

    def _store(self, name: str, rows: FloatArray) -> Table:
        if self.is_native:
            return store_native_table(self.graph, name, rows)
        return store_float_table(self.graph, name, rows, self.storage)

    def _borrow(self, name: str) -> Table:
        """The target's "embedding" or "head"."""
        shape = (self.target_spec.vocab_size, self.target_spec.hidden_size)
        if self.stored is None:
            if name not in self._copies:
                self._copies[name] = self._store(name, self.target.read(self._target_name(name)))
            return self._copies[name]
        if self.is_native:
            return borrow_native_table(self.graph, self.stored, name, shape)
        return borrow_float_table(self.graph, self.stored, name, self.storage, shape)

    def _target_name(self, name: str) -> str:
        return "model.embed_tokens.weight" if name == "embedding" else "lm_head.weight"
