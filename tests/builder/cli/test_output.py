"""Tables, sizes and progress lines."""

import io

import pytest
from draftsmith.builder.cli.output import megabytes, print_facts, print_table, resumable
from draftsmith.builder.console import ConsoleProgress
from rich.console import Console


def test_columns_are_aligned_and_numbers_stand_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "n"], [["a", 5], ["long", 120]])
    assert capsys.readouterr().out == "name    n\na       5\nlong  120\n"


def test_facts_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"a": 1, "bcd": 2})
    assert capsys.readouterr().out == "a    1\nbcd  2\n"


def test_sizes_change_unit() -> None:
    assert (megabytes(134_515_008), megabytes(16e9)) == ("134.5 MB", "16.0 GB")


def test_a_finished_stage_is_a_line_with_amount_and_note() -> None:
    text = io.StringIO()
    with ConsoleProgress(Console(file=text)).stage("write", total=2e6, unit="bytes") as stage:
        stage.advance(2e6)
        stage.note("all of it")
    assert text.getvalue().startswith("write: 2 MB, 0.")
    assert text.getvalue().endswith(" s, all of it\n")


def test_a_failed_stage_leaves_no_line() -> None:
    text = io.StringIO()
    with pytest.raises(ValueError, match="x"), ConsoleProgress(Console(file=text)).stage("write") as stage:
        stage.note("half")
        raise ValueError("x")
    assert text.getvalue() == ""


def test_brackets_in_titles_are_no_markup() -> None:
    text = io.StringIO()
    with ConsoleProgress(Console(file=text)).stage("model[red]") as stage:
        stage.note("x")
    assert text.getvalue().startswith("model[red]")


def test_an_interrupted_command_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), resumable():
        raise KeyboardInterrupt
    assert "go on with --resume" in capsys.readouterr().err
