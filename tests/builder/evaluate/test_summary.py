"""Figures worked by hand from rows; the CSV file of rows."""

from pathlib import Path

import pytest
from draftsmith.builder.errors import UsageError
from draftsmith.builder.evaluate.rows import RowFile, read_rows
from draftsmith.builder.evaluate.summary import MEAN, OVERALL, find_reached, summarise

from tests.builder.evaluate.results_cases import make_row

PLAIN = {"configuration": "plain", "num_steps": 99, "num_drafted": 0, "num_accepted": 0, "accepted_counts": (99,)}
ROWS = [
    make_row(**PLAIN, task="qa", seconds=4.0, decode_seconds=3.0),
    make_row(task="qa", seconds=2.0, decode_seconds=1.0),
    make_row(**PLAIN, task="rag", question_id="2", num_tokens=300, seconds=6.0, decode_seconds=3.0),
    make_row(task="rag", question_id="2", num_tokens=300, seconds=4.0, num_accepted=33, first_difference=7),
    make_row(**PLAIN, task="arabic", question_id="3", seconds=4.0),
    make_row(task="arabic", question_id="3", seconds=8.0),
]


def test_a_task_adds_up_its_questions() -> None:
    found = next(f for f in summarise(ROWS) if (f.task, f.configuration) == ("qa", "fast"))
    assert (found.tokens_per_second, found.speed_up) == (50.0, 2.0)
    assert (found.decode_tokens_per_second, found.decode_speed_up) == (99.0, 3.0)
    assert (found.accepted_length, found.acceptance_rate) == (3.0, 0.5)
    assert (found.draft_ms, found.verify_ms, found.other_ms, found.step_ms) == (10.0, 20.0, 2.0, 32.0)
    assert found.reached == pytest.approx((1.0, 30 / 33, 25 / 33, 10 / 33))
    assert sum(found.reached[1:]) == pytest.approx(65 / 33)


def test_the_mean_is_of_tasks_and_overall_of_tokens_without_our_own_rows() -> None:
    mean = next(f for f in summarise(ROWS) if (f.task, f.configuration) == (MEAN, "fast"))
    overall = next(f for f in summarise(ROWS) if (f.task, f.configuration) == (OVERALL, "fast"))
    assert mean.speed_up == pytest.approx((2.0 + 1.5) / 2)
    assert overall.speed_up == pytest.approx((400 / 6) / (400 / 10))
    assert mean.accepted_length == pytest.approx((3.0 + 2.0) / 2)
    assert (mean.num_questions, mean.num_mismatches) == (2, 1)
    arabic = next(f for f in summarise(ROWS) if (f.task, f.configuration) == ("arabic", "fast"))
    assert arabic.speed_up == 0.5


def test_plain_decoding_is_1_and_gives_one_token_a_step() -> None:
    for found in (f for f in summarise(ROWS) if f.is_baseline):
        assert (found.speed_up, found.decode_speed_up, found.accepted_length) == (1.0, 1.0, 1.0)


def test_answers_of_one_token_have_no_steps_and_divide_nothing() -> None:
    (found, *_) = summarise(
        [make_row(num_steps=0, num_drafted=0, num_decoded=0, decode_seconds=0.0, accepted_counts=())]
    )
    assert (found.draft_ms, found.decode_tokens_per_second, found.acceptance_rate, found.reached) == (0, 0, 0, ())


def test_a_task_whose_answers_ended_at_once_is_left_out_of_the_mean() -> None:
    nothing = {"num_tokens": 0, "num_decoded": 0, "decode_seconds": 0.0, "num_steps": 0, "num_drafted": 0}
    empty = {**nothing, "num_accepted": 0, "accepted_counts": (), "task": "math"}
    rows = [*ROWS, make_row(**{**PLAIN, **empty}), make_row(**empty)]

    for name in ("plain", "fast"):
        before, after = (
            next(f for f in summarise(given) if (f.task, f.configuration) == (MEAN, name)) for given in (ROWS, rows)
        )
        assert (after.speed_up, after.decode_speed_up) == (before.speed_up, before.decode_speed_up)
        assert (after.accepted_length, after.verify_ms) == (before.accepted_length, before.verify_ms)


def test_shares_of_steps_that_reached_a_length() -> None:
    assert find_reached([1, 2, 1]) == (1.0, 0.75, 0.25)
    assert find_reached([]) == ()


def test_rows_come_back_from_the_file_as_they_were(tmp_path: Path) -> None:
    rows = [make_row(question_id='a,b\n"c"'), make_row(temperature=1.0, accepted_counts=(), first_difference=5)]
    file = RowFile(tmp_path / "rows.csv", rows[:1])
    file.add(rows[1:])
    file.close()
    assert read_rows(tmp_path / "rows.csv") == rows


def test_a_line_that_was_cut_off_is_left_out_and_another_file_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    RowFile(path, [make_row(), make_row()]).close()
    path.write_text(path.read_text().rstrip().rsplit(",", 3)[0])
    assert read_rows(path) == [make_row()]
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="rows of this version"):
        read_rows(path)
    path.write_text("")
    with pytest.raises(UsageError, match="an empty file"):
        read_rows(path)
