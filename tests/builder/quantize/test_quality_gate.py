"""The gate on real builds of tiny models: what it measures, what it refuses, whom it names."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder.checkpoint.source import open_checkpoint
from draftsmith.builder.errors import BuildError
from draftsmith.builder.pipeline import build
from draftsmith.builder.plan import BuildPlan
from draftsmith.builder.progress import Silent
from draftsmith.builder.quantize import choice
from draftsmith.builder.quantize.calibration import Calibration
from draftsmith.builder.quantize.engine_gate import describe_speed
from draftsmith.builder.quantize.quality_gate import QualityLimits, QualityReport, kl_divergence
from draftsmith.builder.quantize.ranking import rank_linears

from tests.tiny_models import tiny_config, tiny_weights

OUTLIER = 5


def _plan(checkpoint: Path, output: Path, **options: object) -> BuildPlan:
    values = {"precisions": ("int8",), "kernels": "onnxruntime", "max_length": 128, "max_query_len": 32}
    return BuildPlan(checkpoint=checkpoint, output=output, name="tiny", **(values | options))  # type: ignore[arg-type]


def _outlier_weights() -> dict[str, np.ndarray]:
    """One channel of each normed input 100 times larger, and its weights so much smaller: the same model (case B7)."""
    weights = tiny_weights(tiny_config("llama"))
    changed = {}
    for layer in range(4):
        for norm, readers in (
            ("input_layernorm", [f"self_attn.{part}_proj" for part in "qkv"]),
            ("post_attention_layernorm", ["mlp.gate_proj", "mlp.up_proj"]),
        ):
            name = f"model.layers.{layer}.{norm}.weight"
            changed[name] = weights[name].copy()
            changed[name][OUTLIER] *= 100
            for reader in readers:
                name = f"model.layers.{layer}.{reader}.weight"
                changed[name] = weights[name].copy()
                changed[name][:, OUTLIER] /= 100
    return changed


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3"])
def test_a_build_says_how_far_it_is_from_fp16(
    family: str, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    (package,) = build(_plan(tiny_checkpoint(family), tmp_path / "out"), Silent())
    quality = package.quality
    assert 0 < quality["kl_per_token"] < 0.01
    assert quality["kl_per_token"] < quality["kl_p99"] < quality["kl_max"]
    assert quality["top1_agreement"] > 0.88
    assert quality["num_tokens"] > 500
    assert quality["step_ms"] > 0
    assert quality["fp16_step_ms"] > 0
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == ["tiny_int8"]
    facts = package.manifest.build["engine"]["int8"]
    assert len(facts["linears"]) == 17
    assert quality["worst_linear"] in facts["linears"]


@pytest.mark.parametrize("kernels", ["onnxruntime", "auto"])
def test_a_limit_that_is_passed_fails_the_build_and_names_the_worst_linear(
    kernels: str, tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with pytest.raises(BuildError, match=r"quality gate: expected KL at most 1e-06 .* worst linear (layers\.\d|head)"):
        build(_plan(tiny_checkpoint("llama"), output, max_kl=1e-6, kernels=kernels), Silent())
    assert not list(output.glob("*"))


def test_one_scale_for_a_tensor_with_an_outlier_is_caught_and_factors_mend_it(
    tiny_checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tiny_checkpoint("llama", extra=_outlier_weights())
    (package,) = build(_plan(checkpoint, tmp_path / "good"), Silent())
    assert package.quality["kl_per_token"] < 0.01
    monkeypatch.setattr(choice, "EXPONENTS", (0.0,))
    monkeypatch.setattr(choice, "MAX_PLANES", 1)
    with pytest.raises(BuildError, match=r"worst linear layers\.\d\.(qkv|gate_up)"):
        build(_plan(checkpoint, tmp_path / "bad"), Silent())
    assert not list((tmp_path / "bad").glob("*"))


def test_a_weight_beyond_fp16_fails_the_fp16_build_by_name(
    tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Case B6."""
    name = "model.layers.2.mlp.down_proj.weight"
    weight = tiny_weights(tiny_config("llama"))[name].copy()
    weight[3, 7] = 1e5
    checkpoint = tiny_checkpoint("llama", extra={name: weight})
    with pytest.raises(
        BuildError, match=r"FP16 overflow, tensor layers\.2\.down\.weight: expected values up to 65,504"
    ):
        build(_plan(checkpoint, tmp_path / "out", precisions=("fp16",)), Silent())
    assert not list((tmp_path / "out").glob("*"))


def test_activations_beyond_fp16_are_reported_with_their_layer(
    tiny_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Case B6: one MLP scaled until it happens."""
    weights = tiny_weights(tiny_config("llama"))
    scaled = {n: weights[n] * 3e4 for n in weights if n.startswith("model.layers.1.mlp.up")}
    (package,) = build(
        _plan(tiny_checkpoint("llama", extra=scaled), tmp_path / "out", max_kl=9.0, min_top1=0.0), Silent()
    )
    assert set(package.manifest.build["engine"]["int8"]["beyond_fp16"]) >= {"layers.1.down"}


def test_an_engine_that_is_slower_than_fp16_is_called_so() -> None:
    """Case B8."""
    assert describe_speed(7.1, 20.4) == "a step takes 7.1 ms, in FP16 about 20.4 ms"
    assert "INT8 is slower on this machine" in describe_speed(9.0, 8.0)


def test_a_bigger_budget_buys_fewer_bits(tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama")
    bits = []
    for budget in (0.0, 0.003, 100.0):
        plan = _plan(checkpoint, tmp_path / str(budget), error_budget=budget, max_kl=100.0, min_top1=0.0)
        linears = build(plan, Silent())[0].manifest.build["engine"]["int8"]["linears"]
        bits.append(sum(row["bits"] for row in linears.values()))
    assert bits[0] == 17 * 24
    assert bits[0] > bits[1] > bits[2] == 17 * 8


def test_kl_is_that_of_the_definition_and_not_shift_dependent() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    found = kl_divergence(np.log([p]).astype(np.float32) + 7, np.log([q]).astype(np.float32) - 3)
    assert found == pytest.approx([0.5 * np.log(2) - 0.25 * np.log(2)], rel=1e-5)
    assert kl_divergence(np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32)) == pytest.approx([0.0])


def test_figures_that_are_no_numbers_do_not_pass() -> None:
    report = QualityReport(
        kl_per_token=float("nan"), kl_p99=0.0, kl_max=0.0, top1_agreement=1.0, num_tokens=9, limits=QualityLimits()
    )
    with pytest.raises(BuildError, match="found KL nan"):
        report.check()


def test_the_ranking_covers_every_linear(tiny_checkpoint: Callable[..., Path]) -> None:
    with open_checkpoint(tiny_checkpoint("qwen3")) as checkpoint:
        table = rank_linears(checkpoint, Silent())
    assert len(table) == 17
    assert all(row["weight_kl"] > 0 for row in table.values())


def test_calibration_shows_moments_and_maxima_of_the_same_inputs(tiny_checkpoint: Callable[..., Path]) -> None:
    seen = {}
    sequences = [np.arange(3, 40), np.arange(60, 90)]
    with open_checkpoint(tiny_checkpoint("llama")) as checkpoint:
        calibration = Calibration(checkpoint, sequences)
        calibration.run(lambda head: seen.setdefault("head", head), lambda i, layer: seen.update({i: layer}), Silent())
    assert sorted(seen, key=str) == [0, 1, 2, 3, "head"]
    down = seen[2]["down"]
    np.testing.assert_allclose(down.moment, down.x.T @ down.x / len(down.x), atol=1e-5 * down.moment.max())
    np.testing.assert_array_equal(down.channel_max, np.abs(down.x).max(axis=0))
