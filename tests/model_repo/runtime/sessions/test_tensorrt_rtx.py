from pathlib import Path

import pytest
from draftsmith.model_repo.runtime.errors import EngineError
from draftsmith.model_repo.runtime.sessions.tensorrt_rtx import open_session, parse_gpu_query

from tests.tiny_manifest import tiny_rtx_manifest

MANIFEST = tiny_rtx_manifest(
    requires={"tensorrt_rtx": "==1.7.1", "compute_capability": "8.6", "cuda": ">=13", "driver": ">=580"}
)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("8.9, 580.65.06\n12.0, 580.65.06\n", {"compute_capability": "8.9", "driver": "580.65.06"}),
        ("", {}),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", {}),
    ],
)
def test_the_first_gpu_is_read_from_the_query(text: str, facts: dict[str, str]) -> None:
    assert parse_gpu_query(text) == facts


def test_the_error_says_that_running_is_not_there_yet(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"expected a backend that this version of draftsmith runs .*--backend onnx"):
        open_session(tmp_path, MANIFEST, num_threads=1, num_slots=1)
