import numpy as np
from draftsmith.model_repo.runtime.noise import (
    GUMBEL_MAX,
    GUMBEL_MIN,
    gumbel,
    mix,
    position_key,
    position_uniform,
    token_bits,
)
from scipy import stats


def test_mix_is_splitmix64():
    # The published first outputs for the seed 1234567 (Vigna's splitmix64.c): each output mixes seed + i * GOLDEN.
    state = 1234567
    outputs = []
    for _ in range(3):
        outputs.append(mix(state))
        state = (state + 0x9E3779B97F4A7C15) % 2**64
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_token_bits_equal_the_formula_token_by_token():
    key = position_key(2**64 - 1, 12)
    ids = np.array([0, 1, 49151, 262143])
    expected = [mix((key + (int(t) + 1) * 0x9E3779B97F4A7C15) % 2**64) >> 32 for t in ids]
    assert token_bits(key, ids).tolist() == expected


def test_noise_depends_on_seed_position_and_token_alone():
    ids = np.arange(100)
    base = token_bits(position_key(1, 2), ids)
    assert (token_bits(position_key(1, 2), ids[::-1])[::-1] == base).all()
    assert not (token_bits(position_key(1, 3), ids) == base).any()
    assert not (token_bits(position_key(2, 2), ids) == base).any()


def test_gumbel_noise_has_the_gumbel_distribution_over_tokens_and_over_positions():
    over_tokens = gumbel(token_bits(position_key(3, 4), np.arange(20_000)))
    over_positions = np.array([gumbel(token_bits(position_key(3, p), np.array([7])))[0] for p in range(5_000)])
    for sample in (over_tokens, over_positions):
        assert stats.kstest(sample, "gumbel_r").pvalue > 1e-4


def test_gumbel_noise_is_bounded_by_what_32_bits_can_say():
    ends = gumbel(np.array([0, 2**32 - 1], np.uint64))
    assert ends[0] == GUMBEL_MIN or np.isclose(ends[0], GUMBEL_MAX)
    assert np.isclose(sorted(ends), [GUMBEL_MIN, GUMBEL_MAX]).all()
    assert np.isfinite(ends).all()


def test_uniform_numbers_of_two_streams_are_independent():
    pairs = np.array([[position_uniform(position_key(5, p), s) for s in (1, 2)] for p in range(4000)])
    assert ((pairs > 0) & (pairs < 1)).all()
    table, *_ = np.histogram2d(pairs[:, 0], pairs[:, 1], bins=4, range=[[0, 1], [0, 1]])
    assert stats.chisquare(table.ravel()).pvalue > 1e-4
