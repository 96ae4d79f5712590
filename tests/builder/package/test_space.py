"""Room on the disk and in memory, with the bytes in the message."""

from dataclasses import replace
from pathlib import Path

import pytest
from draftsmith.builder.errors import BuildError, ServeError
from draftsmith.builder.package.space import (
    PROCESS_BYTES,
    check_disk,
    check_memory,
    machine_memory,
    measure_files,
    serving_bytes,
)
from draftsmith.model_repo.contract.manifest import KvCacheSpec, Manifest

from tests.tiny_manifest import tiny_draft_engine


def test_a_build_larger_than_the_disk_is_refused_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"disk: expected about 1,050,000,000,000,000,000 bytes free, found [\d,]+"):
        check_disk(tmp_path / "not" / "there" / "yet", 10**18)


def test_serving_needs_weights_and_every_slot_of_cache(manifest: Manifest) -> None:
    cache = 2 * 1 * 1 * 4 * 16 * 4  # K and V, layers, heads, head size, tokens, bytes
    assert serving_bytes(manifest) == 2 * (5 + 2) + 2 * cache + PROCESS_BYTES


def test_a_drafts_cache_is_counted_and_named(manifest: Manifest) -> None:
    cache = KvCacheSpec(num_layers=1, num_kv_heads=3, head_dim=4, capacity=64, dtype="float32")
    drafted = replace(manifest, draft=tiny_draft_engine(kv_cache=cache))
    own = 2 * 3 * 4 * 64 * 4  # K and V, heads, head size, columns, bytes
    need = serving_bytes(drafted)
    assert need == serving_bytes(manifest) + 2 * own
    with pytest.raises(ServeError, match=rf"cache 1,024 and the draft's {2 * own:,} for 2 slots of 16 tokens"):
        check_memory({"tiny": drafted}, need - 1)


def test_a_cache_larger_than_memory_is_refused_with_the_bytes(manifest: Manifest) -> None:
    need = serving_bytes(manifest)
    with pytest.raises(ServeError, match=rf"memory: expected {need:,} bytes \(tiny .* cache 1,024 for 2 slots of 16"):
        check_memory({"tiny": manifest}, need - 1)
    check_memory({"tiny": manifest}, need)


def test_this_machine_has_memory() -> None:
    assert 1 << 28 < machine_memory() < 1 << 50


def test_files_are_measured_alone_and_with_all_below(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "model.safetensors").write_bytes(b"x" * 300)
    (tmp_path / "inner" / "config.json").write_bytes(b"x" * 20)
    assert measure_files(tmp_path) == 320
    assert measure_files(tmp_path / "model.safetensors") == 300
