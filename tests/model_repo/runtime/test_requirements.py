import json
from pathlib import Path

import pytest
from draftsmith.model_repo.contract.manifest import Manifest
from draftsmith.model_repo.runtime.errors import EngineError
from draftsmith.model_repo.runtime.loading import load_engine
from draftsmith.model_repo.runtime.requirements import check_requirements, is_met
from draftsmith.model_repo.runtime.sessions import tensorrt_rtx

from tests.tiny_manifest import tiny_rtx_manifest

RTX = {"tensorrt_rtx": "==1.7.1", "compute_capability": "8.6, 12.0", "cuda": ">=13", "driver": ">=580"}
MACHINE = {"tensorrt_rtx": "1.7.1.116", "compute_capability": "12.0", "cuda": "13.1", "driver": "580.65.06"}


def write_package(folder: Path, requires: dict[str, str]) -> Path:
    """An engine folder whose engine file is missing."""
    values = manifest(requires).to_dict()
    values["files"] = [{"name": n, "num_bytes": 1, "sha256": "0" * 64} for n in ("target.engine", "tokenizer.json")]
    (folder / "engine.json").write_text(json.dumps(values))
    return folder


def manifest(requires: dict[str, str]) -> Manifest:
    return tiny_rtx_manifest(precision="int8", requires=requires)


@pytest.mark.parametrize(
    ("wanted", "value", "met"),
    [
        (">=1.32", "1.32.0", True),
        (">=1.32", "1.100", True),
        (">=1.32", "1.9", False),
        (">=1.32", "1.33.0+cpu", True),
        (">=580", "580.65.06", True),
        (">=580", "575.51.03", False),
        ("==1.7.1", "1.7.1.116", True),
        ("==1.7.1", "1.7.2.1", False),
        ("==1.7.1", "1.7", False),
        ("8.6, 12.0", "12.0", True),
        ("8.6, 12.0", "2.0", False),
        ("8.6, 12.0", "8.9", False),
        (">=1.32", "none", False),
        ("8.6", "none", False),
    ],
)
def test_a_requirement_is_met_or_not(wanted: str, value: str, met: bool) -> None:
    assert is_met(wanted, value) is met


def test_a_machine_with_all_that_is_needed_passes() -> None:
    check_requirements(manifest(RTX), MACHINE)


def test_another_gpu_is_refused_with_both_values_and_the_command_to_rebuild() -> None:
    with pytest.raises(EngineError) as caught:
        check_requirements(manifest(RTX), MACHINE | {"compute_capability": "8.9"})
    assert str(caught.value) == (
        "tiny (tensorrt-rtx, int8) compute_capability: expected 8.6, 12.0, found 8.9 (requires in engine.json). "
        "Use such a machine, or rebuild for this one: "
        "`build-engine build CHECKPOINT --precision int8 --backend tensorrt-rtx --gpu sm89`"
    )


def test_another_release_of_the_library_is_refused_with_both_versions() -> None:
    with pytest.raises(EngineError, match=r"tensorrt_rtx: expected ==1\.7\.1, found 1\.8\.0\.3 .*--gpu sm120`$"):
        check_requirements(manifest(RTX), MACHINE | {"tensorrt_rtx": "1.8.0.3"})


def test_a_machine_without_anything_is_refused_for_the_first_thing() -> None:
    with pytest.raises(EngineError, match=r"tensorrt_rtx: expected ==1\.7\.1, found none"):
        check_requirements(manifest(RTX), {})


def test_loading_refuses_an_engine_for_another_gpu_before_it_looks_at_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tensorrt_rtx, "find_machine_facts", lambda: MACHINE | {"compute_capability": "8.9"})
    with pytest.raises(EngineError, match=r"compute_capability: expected 8\.6, 12\.0, found 8\.9 .*--gpu sm89`$"):
        load_engine(write_package(tmp_path, RTX))


def test_loading_an_rtx_engine_without_a_gpu_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"expected 8\.6, found none .*--backend onnxruntime`$"):
        load_engine(write_package(tmp_path, {"compute_capability": "8.6"}))
