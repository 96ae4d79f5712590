"""Which cache slot belongs to whom. Busy slots are kept at the front: a step over consecutive slots is one run."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class SlotMove(Generic[Owner]):
    """The owner's cache must be copied from one slot to another."""

    owner: Owner
    source: int
    destination: int


class KvSlots(Generic[Owner]):
    """Slots 0 to num_slots - 1, each free or owned."""

    def __init__(self, num_slots: int) -> None:
        self._owners: list[Owner | None] = [None] * num_slots

    @property
    def num_slots(self) -> int:
        return len(self._owners)

    @property
    def num_busy(self) -> int:
        return sum(owner is not None for owner in self._owners)

    def claim(self, owner: Owner) -> int | None:
        """Give ``owner`` the lowest free slot; None where all are busy."""
        for slot, current in enumerate(self._owners):
            if current is None:
                self._owners[slot] = owner
                return slot
        return None

    def release(self, slot: int) -> None:
        """Make a slot free. Its content is left as it is: the next owner overwrites it."""
        if self._owners[slot] is None:
            raise ValueError(f"slot {slot} is free already")
        self._owners[slot] = None

    def close_gaps(self) -> list[SlotMove[Owner]]:
        """Move the owners of the highest slots into free lower ones; the moves, to be made in this order."""
        moves: list[SlotMove[Owner]] = []
        low, high = 0, len(self._owners) - 1
        while True:
            while low < high and self._owners[low] is not None:
                low += 1
            while high > low and self._owners[high] is None:
                high -= 1
            owner = self._owners[high]
            if low >= high or owner is None:
                return moves
            self._owners[low], self._owners[high] = owner, None
            moves.append(SlotMove(owner, high, low))
