"""A small manifest whose files exist."""

from pathlib import Path

import pytest
from draftsmith.builder.package.manifest import describe_files
from draftsmith.builder.progress import Silent
from draftsmith.model_repo.contract.manifest import FORMAT_VERSION, KvCacheSpec, Manifest


@pytest.fixture
def engine_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "target.onnx").write_bytes(b"graph")
    (folder / "tokenizer.json").write_bytes(b"{}")
    return folder


@pytest.fixture
def manifest(engine_folder: Path) -> Manifest:
    return Manifest(
        format_version=FORMAT_VERSION,
        draftsmith_version="0.1.0",
        model_name="tiny",
        backend="onnxruntime",
        backend_version="1.32.0",
        precision="fp16",
        spec={},
        vocab_size=300,
        max_batch=2,
        max_length=16,
        max_query_len=8,
        min_query_len=2,
        feature_layers=[],
        kv_cache=KvCacheSpec(num_layers=1, num_kv_heads=1, head_dim=4, capacity=16, dtype="float32"),
        bos_id=None,
        end_ids=[2],
        special_tokens={},
        graph_file="target.onnx",
        tokenizer_file="tokenizer.json",
        chat_template_file=None,
        files=describe_files(engine_folder, ["target.onnx", "tokenizer.json"], Silent()),
        requires={},
        build={},
        quality={},
    )
