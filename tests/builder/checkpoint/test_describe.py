"""What ``inspect`` prints: plain JSON values, right sums."""

import json
from collections.abc import Callable
from pathlib import Path

from draftsmith.builder.checkpoint.describe import describe_checkpoint
from draftsmith.builder.checkpoint.source import open_checkpoint


def test_description_is_json_and_adds_up(tiny_checkpoint: Callable[..., Path]) -> None:
    folder = tiny_checkpoint("qwen2", dtype="BF16", generation={"eos_token_id": [2, 0]})
    with open_checkpoint(folder) as checkpoint:
        facts = json.loads(json.dumps(describe_checkpoint(checkpoint, max_batch=4, max_length=10_000)))
    assert facts["format"] == "safetensors"
    assert facts["weights"]["bytes_by_type"] == {"BF16": facts["weights"]["bytes"]}
    assert facts["weights"]["bytes"] == 2 * facts["weights"]["parameters"]
    assert facts["tokenizer"]["padding_rows"] == 5
    assert facts["generation"]["end_ids"] == [2, 0]
    assert facts["estimates"]["max_length"] == 512  # the model's own limit
    assert [e["precision"] for e in facts["estimates"]["precisions"]] == ["fp32", "fp16", "int8"]
