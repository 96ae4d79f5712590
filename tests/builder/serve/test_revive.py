"""Models that died are loaded again, but not for ever."""

import pytest
from draftsmith.builder.errors import ServeError
from draftsmith.builder.serve.revive import MAX_DEATHS, WINDOW_S, Reviver


def test_only_the_dead_are_loaded_again() -> None:
    loaded: list[str] = []
    Reviver(lambda name: not loaded.append(name), lambda: 0.0).check(["a", "b"], {"b": 7})
    assert loaded == ["a"]


def test_a_model_that_keeps_dying_ends_the_server() -> None:
    reviver = Reviver(lambda name: True, lambda: 0.0)
    for _ in range(MAX_DEATHS - 1):
        reviver.check(["a"], {})
    with pytest.raises(ServeError, match="a: expected a process that stays alive, found 3 deaths"):
        reviver.check(["a"], {})


def test_rare_deaths_are_forgiven() -> None:
    times = iter(range(0, 100 * int(WINDOW_S), int(WINDOW_S)))
    reviver = Reviver(lambda name: True, lambda: float(next(times)))
    for _ in range(3 * MAX_DEATHS):
        reviver.check(["a"], {})


def test_a_model_that_cannot_be_loaded_again_is_named() -> None:
    with pytest.raises(ServeError, match="a: expected to be loaded again"):
        Reviver(lambda name: False, lambda: 0.0).check(["a"], {})
