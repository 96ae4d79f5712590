import pytest
from draftsmith.model_repo.runtime.kv_slots import KvSlots, SlotMove
from hypothesis import given
from hypothesis import strategies as st


def test_the_lowest_free_slot_is_claimed():
    slots = KvSlots(2)
    assert (slots.claim("a"), slots.claim("b"), slots.claim("c")) == (0, 1, None)
    slots.release(0)
    assert slots.claim("c") == 0


def test_a_slot_is_released_once():
    slots = KvSlots(1)
    with pytest.raises(ValueError, match="free already"):
        slots.release(0)


def test_gaps_are_filled_from_the_end():
    slots = KvSlots(5)
    for owner in "abcde":
        slots.claim(owner)
    slots.release(0)
    slots.release(3)
    assert slots.close_gaps() == [SlotMove("e", 4, 0)]
    assert slots.close_gaps() == []


@given(st.lists(st.integers(0, 5), max_size=30))
def test_busy_slots_are_dense_after_closing_gaps(choices):
    slots, owned = KvSlots(6), {}
    for step, slot in enumerate(choices):
        if slot in owned:
            slots.release(slot)
            del owned[slot]
        else:
            owned[slots.claim(step)] = step
        for move in slots.close_gaps():
            assert owned.pop(move.source) == move.owner
            owned[move.destination] = move.owner
        assert sorted(owned) == list(range(slots.num_busy))
