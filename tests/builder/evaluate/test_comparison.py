"""Shares: beside the full head, beside greedy decoding."""

from dataclasses import replace
from pathlib import Path

import pytest
from draftsmith.builder.evaluate.comparison import compare, find_references, share_steps
from draftsmith.builder.evaluate.draft_steps import DraftStep
from draftsmith.builder.evaluate.summary import summarise

from tests.builder.evaluate.results_cases import make_entry, make_row

PLAIN, FULL, FAST = make_entry("plain"), make_entry("full", head="full"), make_entry("fast")


def test_the_reference_is_the_first_full_head_that_drafts_alone_with_the_same_target() -> None:
    other = replace(make_entry("other"), baseline="plain (b)")
    both = make_entry("both", "draft=auto", head="full")
    entries = [PLAIN, both, FULL, FAST, make_entry("n", "draft=ngram"), other]
    assert find_references(entries) == dict.fromkeys(("both", "full", "fast"), "full")
    assert find_references([PLAIN, FAST]) == {}


def test_accepted_lengths_are_compared_on_the_same_task_and_temperature() -> None:
    rows = [
        make_row(configuration="plain", num_accepted=0),
        make_row(configuration="full", num_accepted=66),
        make_row(configuration="fast", num_accepted=33),
        make_row(configuration="full", num_accepted=33, task="rag"),
        make_row(configuration="fast", num_accepted=33, task="rag"),
    ]
    found = {(c.figures.configuration, c.figures.task): c for c in compare(summarise(rows), [PLAIN, FULL, FAST])}
    assert found["fast", "qa"].accepted_share == pytest.approx(2 / 3)
    assert found["fast", "rag"].accepted_share == 1.0
    assert found["full", "qa"].accepted_share == 1.0
    assert found["plain", "qa"].accepted_share is None


def test_a_sampled_speed_up_is_compared_with_the_greedy_one() -> None:
    rows = [
        make_row(configuration=name, seconds=seconds, temperature=temperature)
        for name, seconds, temperature in (
            ("plain", 4.0, 0.0),
            ("fast", 2.0, 0.0),
            ("plain", 4.0, 1.0),
            ("fast", 2.5, 1.0),
        )
    ]
    shares = [c.greedy_share for c in compare(summarise(rows), [PLAIN, FAST]) if c.figures.configuration == "fast"]
    assert shares == [None] * 3 + [pytest.approx(0.8)] * 3
    alone = [row for row in rows if row.temperature]
    assert {c.greedy_share for c in compare(summarise(alone), [PLAIN, FAST])} == {None}


def test_draft_steps_are_compared_where_a_full_head_was_timed() -> None:
    steps = {"full": DraftStep(token_ms=2.0, level_ms=3.0), "fast": DraftStep(token_ms=1.0, level_ms=1.5)}
    entries = [PLAIN, FULL, replace(FAST, facts=replace(FAST.facts, folder=Path("other")))]
    assert share_steps(steps, entries) == {"full": (1.0, 1.0), "fast": (0.5, 0.5)}
    assert share_steps({"fast": steps["fast"]}, entries) == {}
