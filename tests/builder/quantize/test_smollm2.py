"""INT8 of a real model on ONNX Runtime's own operators: as near to FP16 as promised."""

from pathlib import Path

import pytest
from draftsmith.builder.draft_options import NONE, DraftChoice
from draftsmith.builder.pipeline import compile_only
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.progress import Silent


@pytest.mark.slow
def test_smollm2_keeps_a_hundredth_of_a_nat_and_95_percent_of_top_tokens(smollm2_gguf: Path, tmp_path: Path) -> None:
    plan = BuildPlan(
        checkpoint=smollm2_gguf,
        output=tmp_path,
        name="smollm2",
        precisions=("int8",),
        kernels="onnxruntime",
        max_kl=0.01,
        min_top1=0.95,
        draft=DraftChoice(source=NONE),
    )
    (engine,) = compile_only(plan, Silent())
    assert engine.num_bytes < 180e6
    bits = engine.manifest.build["engine"]["int8"]["activation_bits"]
    assert bits["8"] >= 30
    assert bits["24"] <= 5
