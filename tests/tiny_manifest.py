"""One small valid manifest that every test varies."""

from dataclasses import replace
from typing import Any

from draftsmith.model_repo.contract.manifest import FORMAT_VERSION, DraftEngine, KvCacheSpec, Manifest

_TINY = Manifest(
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
    draft=None,
    bos_id=None,
    end_ids=[2],
    special_tokens={},
    graph_file="target.onnx",
    tokenizer_file="tokenizer.json",
    chat_template_file=None,
    files=[],
    requires={},
    build={},
    quality={},
)


def tiny_manifest(**changes: Any) -> Manifest:
    """The manifest with ``changes``; its ``files`` are empty unless they are given."""
    return replace(_TINY, **changes)


def tiny_rtx_manifest(**changes: Any) -> Manifest:
    """A TensorRT-RTX engine's."""
    return tiny_manifest(
        backend="tensorrt-rtx",
        backend_version="1.7.1.116",
        graph_file="target.engine",
        kv_cache=KvCacheSpec(num_layers=1, num_kv_heads=1, head_dim=8, capacity=64, dtype="float16"),
        **changes,
    )


def tiny_draft_engine(**changes: Any) -> DraftEngine:
    """The draft of an engine."""
    draft = DraftEngine(
        kind="eagle3",
        name="tiny-draft",
        format="specforge",
        head="full",
        is_native=False,
        first_graph="draft_first.onnx",
        next_graph="draft_next.onnx",
        feature_size=12,
        hidden_size=4,
        num_outputs=16,
        num_candidates=300,
        window=0,
        kv_cache=_TINY.kv_cache,
        spec={},
        quality={},
    )
    return replace(draft, **changes)
