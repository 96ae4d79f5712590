"""The ONNX body of LossyAccept, run by ONNX Runtime, against the float64 reference."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from draftsmith.builder.graph.plugin_functions import declare_outputs, make_accept_node, model_with_functions
from draftsmith.plugins.reference.accept_step import Rule
from onnx import helper

from tests.gpu.accept_cases import RULES, TRUNCATIONS, AcceptCase, check, random_case, relaxed

INPUTS = ("logits", "parents", "token_ids", "num_nodes", "row_floats", "row_ints", "row_keys", "relaxation")


def run_body(case: AcceptCase) -> dict[str, Any]:
    feeds = case.inputs()
    feeds.setdefault("relaxation", np.ones(feeds["parents"].shape, np.float32))
    feeds["row_keys"] = feeds["row_keys"].view(np.int32).reshape(-1, 4)
    names = (*INPUTS, *(("candidate_ids", "candidate_log_probs") if case.num_candidates else ()))
    feeds = {name: feeds[name] for name in names}
    node = make_accept_node(names, num_candidates=case.num_candidates)
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    model = model_with_functions(helper.make_graph([node], "one", values, declare_outputs(node)))
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(node.output, session.run(list(node.output), feeds), strict=True))


def choices(**given: Any) -> list[dict[str, Any]]:
    """Every rule with every truncation."""
    return [
        {"rule": rule, "first": first, "second": second, **given, **truncation}
        for rule, first, second in RULES
        for truncation in TRUNCATIONS
    ]


@pytest.mark.parametrize("logits_type", ["float16", "float32"])
@pytest.mark.parametrize("shared_noise", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_every_rule_walks_trees_as_the_reference_does(logits_type: Any, shared_noise: bool, temperature: float) -> None:
    modes = choices(shared_noise=shared_noise, temperature=temperature)
    for seed in range(3):
        case = random_case(
            seed, requests=len(modes), nodes=7, vocab=83, logits_type=logits_type, peak=3.0, choices=modes
        )
        excused = check(case, run_body(case))
        assert excused <= 1


def test_caps_recovery_relaxation_and_any_mix_of_parameters() -> None:
    for seed in range(3):
        case = relaxed(random_case(seed, requests=30, nodes=9, vocab=61, logits_type="float32", peak=2.0), seed)
        assert check(case, run_body(case)) <= 1


@pytest.mark.parametrize("temperature", [0.7, 1.2])
def test_sampled_chains_of_every_rule(temperature: float) -> None:
    for seed in range(3):
        case = random_case(
            seed,
            requests=len(choices()),
            nodes=5,
            vocab=70,
            logits_type="float32",
            sampled=True,
            num_candidates=12,
            peak=2.0,
            choices=choices(sampled=True, temperature=temperature, kl_cap=0.5),
        )
        assert check(case, run_body(case)) <= 1


def test_rows_that_are_not_finite_end_their_request_alone() -> None:
    case = random_case(5, requests=6, nodes=4, vocab=40, logits_type="float32", choices=[{"rule": Rule.EXACT}])
    case.logits[1, 0, 3] = np.nan
    case.logits[2, 0, 5] = np.inf
    case.logits[3, 0] = -np.inf
    case.logits[4, :, 7:] = -np.inf

    results = run_body(case)

    check(case, results)
    assert results["flags"].tolist() == [0, 1, 1, 1, 0, 0]


def test_graphs_with_and_without_candidates_are_not_mixed() -> None:
    nodes = [
        make_accept_node([f"a{i}" for i in range(8)]),
        make_accept_node([f"b{i}" for i in range(10)], num_candidates=3),
    ]
    with pytest.raises(ValueError, match="found both"):
        model_with_functions(helper.make_graph(nodes, "two", [], []))
