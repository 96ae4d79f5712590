"""The HTML report: well-formed, of one piece, honest about what is missing."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from draftsmith.builder.evaluate.page import render_page
from draftsmith.builder.evaluate.plots import Bar, BarGroup, Part, Series, draw_bars, draw_lines, find_ticks
from draftsmith.builder.evaluate.results import Results
from draftsmith.builder.evaluate.style import CSS

from tests.builder.evaluate.results_cases import make_entry, make_large_results, make_results, make_row

PLAIN = make_row(configuration="plain", num_drafted=0, num_accepted=0, accepted_counts=(33,))


def parse(page: str) -> ElementTree.Element:
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))  # noqa: S314 - our own text


def words_of(results: Results) -> str:
    return " ".join("".join(parse(render_page(results)).itertext()).split())


def test_the_page_is_well_formed_and_has_its_plots() -> None:
    page = parse(render_page(make_large_results()))
    titles = [svg.get("aria-label") for svg in page.iter("svg") if svg.get("class") == "plot"]
    assert titles == [
        *["Speed-up over plain decoding by task"] * 2,
        *["Accepted drafts by position"] * 2,
        *["Milliseconds of a target step"] * 2,
        "Recall of the ranking",
    ]


def test_the_page_needs_neither_network_nor_script() -> None:
    page = render_page(make_large_results())
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<script|<link|<img|\ssrc=|\shref=", page)


def test_light_and_dark_have_the_same_colours_by_name() -> None:
    light, dark = CSS.split("@media (prefers-color-scheme:dark)")
    names = re.compile(r"--([a-z0-9]+):")
    assert set(names.findall(light)) == set(names.findall(dark))
    used = set(re.findall(r"var\(--([a-z0-9]+)\)", CSS))
    assert used <= set(names.findall(light))
    assert CSS.count("{") == CSS.count("}")


def test_names_are_escaped() -> None:
    rows = [PLAIN, make_row(configuration="<b>&")]
    page = render_page(make_results(rows, (make_entry("plain"), make_entry("<b>&"))))
    assert "<b>&<" not in page
    assert "<b>&" in "".join(parse(page).itertext())


def test_the_best_mean_and_equal_answers_are_on_top() -> None:
    rows = [PLAIN, make_row(seconds=0.5)]
    words = words_of(make_results(rows))
    assert "4.00x fast, greedy 200 tokens/s, 3.00 tokens a step" in words.replace("xfast", "x fast").replace(
        "y2", "y 2"
    )
    assert "1 / 1" in words


def test_mismatches_are_named() -> None:
    words = words_of(make_results([PLAIN, make_row(first_difference=17)]))
    assert "1 answers are not plain decoding's: 1 (fast, greedy, token 17)." in words
    assert "0 / 1" in words


def test_skipped_and_missing_questions_are_told() -> None:
    results = make_large_results()
    assert "Long context: 2 skipped, too long for an engine" in words_of(results)
    assert "ended early" not in words_of(results)
    assert "The run ended early: 18 of 40 rounds" in words_of(replace(results, num_wanted=40))


def test_a_run_without_drafts_or_rankings_leaves_their_plots_out() -> None:
    rows = [PLAIN, replace(PLAIN, configuration="fast")]
    page = render_page(make_results(rows, (make_entry("plain", recall={}), make_entry(recall={}))))
    assert "Accepted drafts by position" not in page
    assert "Recall of the ranking" not in page
    parse(page)


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0.0, [0.0]),
        (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (2.3, [0, 0.5, 1, 1.5, 2]),
        (37.0, [0, 10, 20, 30]),
        (0.04, [0, 0.01, 0.02, 0.03, 0.04]),
    ],
)
def test_ticks_are_round_and_few(most: float, ticks: list[float]) -> None:
    assert find_ticks(most) == pytest.approx(ticks)


def test_bars_are_as_long_as_their_values() -> None:
    bars = (
        Bar(
            name="a",
            parts=(Part(name="x", value=1.0, style="draft"), Part(name="y", value=3.0, style="verify")),
            label="4",
        ),
        Bar(name="b", parts=(Part(name="", value=2.0, style="s0"),), label="2"),
    )
    svg = parse(draw_bars([BarGroup(title="t", bars=bars)], title="T", label_share=0.8))
    places = [(rect.get("x"), rect.get("width")) for rect in svg.iter("rect")]
    assert places == [("0.000%", "20.000%"), ("20.000%", "60.000%"), ("0.000%", "40.000%")]


def test_lines_go_from_the_left_bottom_to_the_right_top() -> None:
    line = Series(name="a", colour=1, points=((1.0, 0.5), (3.0, 1.0)))
    drawn = draw_lines([line], title="T", x_title="x", x_ticks=[(1.0, "1"), (3.0, "3")], least=0.5)
    svg = parse(drawn)
    dots = [(dot.get("cx"), dot.get("cy"), dot.get("class")) for dot in svg.iter("circle")]
    assert dots == [("1.500%", "180.00", "dot s1"), ("97.000%", "10.00", "dot s1")]
