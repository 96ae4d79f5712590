from pathlib import Path

import pytest
from draftsmith.model_repo.contract.manifest import FORMAT_VERSION, KvCacheSpec, Manifest
from draftsmith.model_repo.runtime.errors import EngineError
from draftsmith.model_repo.runtime.sessions.tensorrt_rtx import open_session, parse_gpu_query

MANIFEST = Manifest(
    format_version=FORMAT_VERSION,
    draftsmith_version="0.1.0",
    model_name="tiny",
    backend="tensorrt-rtx",
    backend_version="1.7.1.116",
    precision="fp16",
    spec={},
    vocab_size=16,
    max_batch=1,
    max_length=32,
    max_query_len=8,
    min_query_len=2,
    feature_layers=[],
    kv_cache=KvCacheSpec(num_layers=1, num_kv_heads=1, head_dim=8, capacity=64, dtype="float16"),
    bos_id=None,
    end_ids=[2],
    special_tokens={},
    graph_file="target.engine",
    tokenizer_file="tokenizer.json",
    chat_template_file=None,
    files=[],
    requires={"tensorrt_rtx": "==1.7.1", "compute_capability": "8.6", "cuda": ">=13", "driver": ">=580"},
    build={},
    quality={},
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
