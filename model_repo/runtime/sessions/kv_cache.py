"""The cache of an ONNX Runtime session: one block of memory for all layers, so that moving tokens is one operation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...contract.manifest import KvCacheSpec

KEY_GROUP = 16
"""Our own operators keep keys transposed in groups of this many tokens."""


class KvCache:
    """``arrays``: by name (``key_0``, ``value_0``, ...) [slots, Hkv, S, Dh], views of the block.

    ``is_grouped``: keys lie as [..., S / 16, Dh, 16], as our own operators keep them.
    """

    def __init__(self, spec: KvCacheSpec, num_slots: int, *, is_grouped: bool) -> None:
        self.is_grouped = is_grouped
        shape = (2, spec.num_layers, num_slots, spec.num_kv_heads, spec.capacity, spec.head_dim)
        # Pages of zeros take no memory before they are written.
        self._block: npt.NDArray[Any] = np.zeros(shape, spec.dtype)
        self.arrays: dict[str, npt.NDArray[Any]] = {
            f"{kind}_{layer}": self._block[index, layer]
            for layer in range(spec.num_layers)
            for index, kind in enumerate(("key", "value"))
        }

    def close(self) -> None:
        """Free the memory."""
        self.arrays.clear()
        self._block = np.empty(0)

    def move_tokens(self, slot: int, start: int, sources: Sequence[int]) -> None:
        """Tokens at columns ``sources`` (ascending, none below its place) go to ``start``, ``start`` + 1, ..."""
        from_columns = np.array(sources)
        to_columns = np.arange(start, start + len(sources))
        moved = from_columns != to_columns
        from_columns, to_columns = from_columns[moved], to_columns[moved]
        values = self._block[1, :, slot]  # [L, Hkv, S, Dh]
        values[:, :, to_columns] = values[:, :, from_columns]
        keys = self._block[0, :, slot]
        if not self.is_grouped:
            keys[:, :, to_columns] = keys[:, :, from_columns]
            return
        layers, heads, capacity, dim = keys.shape
        grouped = keys.reshape(layers, heads, capacity // KEY_GROUP, dim, KEY_GROUP)
        rows = grouped[:, :, from_columns // KEY_GROUP, :, from_columns % KEY_GROUP]  # [n, L, Hkv, Dh]
        grouped[:, :, to_columns // KEY_GROUP, :, to_columns % KEY_GROUP] = rows

    def copy_slot(self, source: int, destination: int, num_tokens: int) -> None:
        """Copy the first ``num_tokens`` of a slot, in whole groups."""
        num_rows = -(-num_tokens // KEY_GROUP) * KEY_GROUP
        self._block[:, :, destination, :, :num_rows] = self._block[:, :, source, :, :num_rows]
