"""Moving tokens inside the cache block, in the plain layout and in that of our own operators."""

import numpy as np
import pytest
from draftsmith.model_repo.contract.manifest import KvCacheSpec
from draftsmith.model_repo.runtime.sessions.kv_cache import KvCache
from draftsmith.plugins.cpu_reference import restore_keys, transpose_keys

SPEC = KvCacheSpec(num_layers=2, num_kv_heads=3, head_dim=4, capacity=64, dtype="float32")


def filled(*, is_grouped):
    """A cache of random rows, and those rows as plain arrays by name."""
    rng = np.random.default_rng(0)
    cache = KvCache(SPEC, 2, is_grouped=is_grouped)
    plain = {}
    for name, array in cache.arrays.items():
        plain[name] = rng.normal(size=array.shape).astype(np.float32)
        keys = is_grouped and name.startswith("key")
        array[:] = transpose_keys(plain[name]) if keys else plain[name]
    return cache, plain


def read(cache, name):
    keys = cache.is_grouped and name.startswith("key")
    return restore_keys(cache.arrays[name]) if keys else cache.arrays[name]


@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize(("start", "sources"), [(5, [6, 9]), (14, [14, 17, 18, 21]), (31, [40])])
def test_a_path_moves_to_its_start_and_nothing_else_changes(is_grouped, start, sources):
    cache, plain = filled(is_grouped=is_grouped)
    cache.move_tokens(1, start, sources)
    for name, rows in plain.items():
        expected = rows.copy()
        expected[1, :, start : start + len(sources)] = rows[1][:, sources]
        assert np.array_equal(read(cache, name), expected)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_a_slot_is_copied_up_to_its_last_token(is_grouped):
    cache, plain = filled(is_grouped=is_grouped)
    cache.copy_slot(1, 0, 17)
    for name, rows in plain.items():
        assert np.array_equal(read(cache, name)[0, :, :17], rows[1, :, :17])
        assert np.array_equal(read(cache, name)[1], rows[1])
