"""SpecVocabHead's kernels against the NumPy reference, on both paths."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch, for device memory")

from draftsmith.plugins.kernel_library import HeadPath, KernelError, KernelLibrary  # noqa: E402
from draftsmith.plugins.reference.spec_vocab_head import spec_vocab_head  # noqa: E402

from tests.gpu.head_cases import DeviceHead, HeadCase, Sizes, check, numbers, random_case, run, takes  # noqa: E402

hypothesis = pytest.importorskip("hypothesis", reason="needs hypothesis, for random shapes")
strategies = hypothesis.strategies

PATHS = (HeadPath.GENERAL, HeadPath.FUSED)
TYPES = (
    ("float16", "float16"),
    ("bfloat16", "bfloat16"),
    ("float16", "int8"),
    ("bfloat16", "int8"),
    ("float16", "float8_e4m3"),
    ("bfloat16", "float8_e4m3"),
)
PLAIN = Sizes(num_rows=5, hidden_size=320, rank=48, num_vocab=9001, num_candidates=257, num_outputs=10)


@pytest.fixture(params=PATHS, ids=lambda path: path.name.lower())
def path(request: pytest.FixtureRequest) -> HeadPath:
    return HeadPath(request.param)


def check_on(kernels: KernelLibrary, case: HeadCase, path: HeadPath, offset: int = 0) -> None:
    skip_unless_taken(kernels, case, path)
    check(case, run(kernels, case, path, offset))


def skip_unless_taken(kernels: KernelLibrary, case: HeadCase, path: HeadPath) -> None:
    if not takes(kernels, case, path):
        pytest.skip("the fused kernel does not take this shape")


def fused_is_there(kernels: KernelLibrary) -> bool:
    return takes(kernels, random_case(PLAIN, "float16", "float16", 0), HeadPath.FUSED)


def with_rows(case: HeadCase, **changes: object) -> HeadCase:
    """A copy of the case whose tensors may be written to."""
    copies = {name: getattr(case, name).clone() for name in ("hidden", "w_down", "w_vocab", "w_head")}
    return replace(case, **copies, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("hidden_type", "ranking_type"), TYPES)
@pytest.mark.parametrize("num_rows", [1, 5])
def test_every_pair_of_types_agrees_with_the_reference(kernels, path, hidden_type, ranking_type, num_rows):
    check_on(kernels, random_case(replace(PLAIN, num_rows=num_rows), hidden_type, ranking_type, 1), path)


@pytest.mark.parametrize("ranking_type", ["float16", "int8", "float8_e4m3"])
@pytest.mark.parametrize(("num_vocab", "num_candidates"), [(49152, 2048), (128256, 3840)])
def test_shapes_of_models_agree(kernels, path, num_vocab, num_candidates, ranking_type):
    sizes = Sizes(
        num_rows=10, hidden_size=576, rank=256, num_vocab=num_vocab, num_candidates=num_candidates, num_outputs=16
    )
    check_on(kernels, random_case(sizes, "float16", ranking_type, 2), path)


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 7, 8, 9, 10, 15, 16, 17, 31, 32, 33, 48, 60, 63, 64])
def test_every_number_of_rows_agrees(kernels, path, num_rows):
    check_on(kernels, random_case(replace(PLAIN, num_rows=num_rows), "float16", "float16", 3), path)


@pytest.mark.parametrize(
    ("hidden_size", "rank"), [(1, 1), (2, 3), (99, 7), (101, 33), (640, 40), (1000, 64), (989, 129), (72, 1030)]
)
@pytest.mark.parametrize("ranking_type", ["float16", "int8", "float8_e4m3"])
def test_odd_sizes_agree(kernels, path, hidden_size, rank, ranking_type):
    sizes = replace(PLAIN, hidden_size=hidden_size, rank=rank, num_vocab=4099)
    check_on(kernels, random_case(sizes, "float16", ranking_type, 4), path)


@pytest.mark.parametrize("num_rows", [3, 40])
def test_a_rank_of_several_fillings_agrees(kernels, path, num_rows):
    sizes = replace(PLAIN, num_rows=num_rows, rank=2100, num_vocab=3001)
    check_on(kernels, random_case(sizes, "float16", "float16", 5), path)


@pytest.mark.parametrize("num_vocab", [1, 2, 31, 111, 2047, 2048, 2049, 32000, 300001])
def test_every_size_of_vocabulary_agrees(kernels, path, num_vocab):
    sizes = replace(PLAIN, hidden_size=64, num_vocab=num_vocab, num_candidates=min(num_vocab, 300), num_outputs=1)
    check_on(kernels, random_case(sizes, "float16", "float16", 6), path)


@pytest.mark.parametrize("num_candidates", [1, 2, 10, 3839, 3840, 3841, 8192, 9000, 9001])
def test_every_number_of_candidates_agrees(kernels, path, num_candidates):
    sizes = replace(PLAIN, num_candidates=num_candidates, num_outputs=min(num_candidates, 64))
    check_on(kernels, random_case(sizes, "float16", "float16", 7), path)


@pytest.mark.parametrize("num_outputs", [1, 2, 64, 127, 128, 129, 257, 1000, 1024])
def test_every_number_of_outputs_agrees(kernels, path, num_outputs):
    sizes = replace(PLAIN, num_candidates=2000, num_outputs=num_outputs)
    check_on(kernels, random_case(sizes, "float16", "float16", 8), path)


@pytest.mark.parametrize("hidden_type", ["float16", "bfloat16"])
@pytest.mark.parametrize("num_rows", [1, 10])
def test_equal_scores_and_logits_go_to_the_lowest_ids(kernels, path, hidden_type, num_rows):
    sizes = replace(PLAIN, num_rows=num_rows, hidden_size=16, rank=8, num_outputs=200)
    case = random_case(sizes, hidden_type, hidden_type, 9, whole=True)
    skip_unless_taken(kernels, case, path)
    result = run(kernels, case, path)
    expected = spec_vocab_head(numbers(case.hidden), case.weights, case.options)
    for m, chosen in enumerate(expected.chosen_ids):
        assert np.array_equal(result.chosen_ids[m], chosen)
    assert np.array_equal(result.candidate_ids, expected.candidate_ids)
    assert np.array_equal(result.candidate_logits, expected.candidate_logits.astype(np.float32))


@pytest.mark.parametrize("num_candidates", [1, 257, 5000, 9001])
def test_all_equal_scores_choose_the_first_tokens(kernels, path, num_candidates):
    case = random_case(replace(PLAIN, num_candidates=num_candidates, num_outputs=1), "float16", "float16", 10)
    case = with_rows(case)
    case.w_vocab[:] = case.w_vocab[0]
    skip_unless_taken(kernels, case, path)
    result = run(kernels, case, path)
    check(case, result)
    assert (result.chosen_ids == np.arange(num_candidates)).all()


def test_zeros_of_both_signs_are_equal(kernels, path):
    case = with_rows(random_case(PLAIN, "float16", "float16", 11))
    case.w_vocab[:] = 0.0
    case.w_vocab[::2] = -0.0
    skip_unless_taken(kernels, case, path)
    assert (run(kernels, case, path).chosen_ids == np.arange(PLAIN.num_candidates)).all()


def test_denormal_scores_are_ranked(kernels, path):
    case = with_rows(random_case(PLAIN, "float16", "float16", 12))
    case.w_vocab.copy_((case.w_vocab.float() * 2e-6).half())
    check_on(kernels, case, path)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
@pytest.mark.parametrize("ranking_type", ["float16", "int8"])
def test_a_row_of_hidden_states_that_is_not_finite_is_broken_alone(kernels, path, value, ranking_type):
    case = with_rows(random_case(PLAIN, "float16", ranking_type, 13), request_of_row=(0, 0, 1, 1, 0))
    case.hidden[1, 77] = value
    case.hidden[3, :] = value
    skip_unless_taken(kernels, case, path)
    result = run(kernels, case, path)
    check(case, result)
    assert (result.chosen_ids[[1, 3]] == -1).all()
    assert np.isfinite(result.log_sum_exp[[0, 2, 4]]).all()


@pytest.mark.parametrize("num_candidates", [257, 9001])
def test_scores_that_are_not_numbers_rank_lowest(kernels, path, num_candidates):
    case = with_rows(random_case(replace(PLAIN, num_candidates=num_candidates), "float16", "float16", 14))
    case.w_vocab[::3, 5] = float("nan")
    case.w_vocab[1::3, 5] = float("-inf")
    check_on(kernels, case, path)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_rows_of_w_head_that_are_not_finite(kernels, path, value):
    case = with_rows(random_case(PLAIN, "float16", "float16", 15))
    case.w_head[::50] = value
    check_on(kernels, case, path)


def test_logits_of_minus_infinity_alone(kernels, path):
    case = with_rows(random_case(PLAIN, "float16", "float16", 16))
    case.hidden.abs_()
    case.w_head[:] = float("-inf")
    check_on(kernels, case, path)


def test_an_overflow_of_the_projection_breaks_the_row(kernels, path):
    case = with_rows(random_case(PLAIN, "float16", "float16", 17))
    case.hidden[2] *= 8000
    case.w_down[:, :] = 1.0
    case.hidden[2] = 600.0
    check_on(kernels, case, path)


@pytest.mark.parametrize(
    "requests", [(0, 0, 0, 0, 0), (3, -1, 3, -1, 3), (0, 1, 2, 3, 4), (2**31 - 1, 5, 5, -(2**31), 5)]
)
def test_rows_of_a_request_share_their_union(kernels, path, requests):
    check_on(kernels, with_rows(random_case(PLAIN, "float16", "float16", 18), request_of_row=requests), path)


@pytest.mark.parametrize("num_rows", [16, 64])
def test_unions_of_many_rows_agree(kernels, path, num_rows):
    sizes = replace(PLAIN, num_rows=num_rows, num_vocab=20000, num_candidates=1000)
    requests = tuple(m * 7 % 5 for m in range(num_rows))
    check_on(kernels, with_rows(random_case(sizes, "float16", "int8", 19), request_of_row=requests), path)


@pytest.mark.parametrize(("group_size", "num_candidates"), [(2, 256), (7, 259), (16, 256), (16, 9001), (256, 1024)])
@pytest.mark.parametrize("shares", [False, True])
def test_groups_agree(kernels, path, group_size, num_candidates, shares):
    sizes = replace(PLAIN, group_size=group_size, num_candidates=num_candidates)
    case = random_case(sizes, "float16", "float16", 20)
    check_on(kernels, with_rows(case, request_of_row=(0, 1, 0, 1, 0) if shares else None), path)


@pytest.mark.parametrize("ranking_type", ["float16", "int8"])
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("group", [(2, 1), (2, 10), (16, 1), (16, 4), (16, 16), (16, 20)])
def test_groups_of_many_tokens_agree(kernels, path, group, shares, ranking_type):
    group_size, num_rows = group
    sizes = Sizes(
        num_rows=num_rows,
        hidden_size=136,
        rank=40,
        num_vocab=20001,
        num_candidates=1024,
        num_outputs=16,
        group_size=group_size,
    )
    requests = tuple(m * 5 % 3 for m in range(num_rows)) if shares else None
    check_on(kernels, with_rows(random_case(sizes, "float16", ranking_type, 32), request_of_row=requests), path)


@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("num_equal", [40, 300])
def test_equal_scores_of_groups_choose_the_first(kernels, path, num_rows, num_equal):
    sizes = replace(PLAIN, num_rows=num_rows, group_size=16, num_candidates=320, num_outputs=16)
    case = with_rows(random_case(sizes, "float16", "float16", 33))
    case.hidden.abs_()
    case.w_down.abs_()
    case.w_vocab[:] = -case.w_vocab.abs()
    equal = torch.arange(num_equal) * 13 % sizes.num_ranked
    case.w_vocab[equal] = 0.5
    skip_unless_taken(kernels, case, path)
    result = run(kernels, case, path)
    check(case, result)
    expected = (torch.sort(equal).values[:20, None] * 16 + torch.arange(16)).flatten().numpy()
    assert (result.chosen_ids == expected).all()


@pytest.mark.parametrize(("num_rows", "requests"), [(1, None), (10, None), (10, (0, 1) * 5)])
def test_groups_give_the_same_bits(kernels, path, num_rows, requests):
    sizes = replace(PLAIN, num_rows=num_rows, num_vocab=50000, num_candidates=2048, group_size=16)
    case = with_rows(random_case(sizes, "float16", "float16", 34), request_of_row=requests)
    head = DeviceHead(kernels, case, path)
    head.launch()
    first = head.read().bits()
    for _ in range(30):
        head.launch()
        assert head.read().bits() == first


@pytest.mark.parametrize("rank", [8, 24, 40, 248])
@pytest.mark.parametrize("num_rows", [1, 10])
@pytest.mark.parametrize("vocabulary", [(4099, 1), (4096, 1), (9001, 2), (9001, 16)])
def test_rows_of_int8_of_any_eight_bytes_agree(kernels, path, rank, num_rows, vocabulary):
    num_vocab, group_size = vocabulary
    sizes = replace(PLAIN, rank=rank, num_rows=num_rows, num_vocab=num_vocab, num_candidates=256, group_size=group_size)
    case = random_case(sizes, "float16", "int8", 35)
    assert path is HeadPath.GENERAL or not fused_is_there(kernels) or takes(kernels, case, path)
    check_on(kernels, case, path)


def test_a_short_last_group_leaves_candidates_missing(kernels, path):
    sizes = replace(PLAIN, num_vocab=4097, group_size=16, num_candidates=16, num_outputs=16)
    case = with_rows(random_case(sizes, "float16", "float16", 21))
    case.hidden.abs_()
    case.w_down.abs_()
    case.w_vocab[:-1] = -1.0
    case.w_vocab[-1] = 1.0
    skip_unless_taken(kernels, case, path)
    result = run(kernels, case, path)
    check(case, result)
    assert (result.candidate_ids[:, 0] == 4096).all()
    assert (result.candidate_ids[:, 1:] == -1).all()


@pytest.mark.parametrize("ranking_type", ["float16", "int8"])
@pytest.mark.parametrize("num_rows", [1, 10])
def test_skewed_weights_agree(kernels, path, ranking_type, num_rows):
    sizes = Sizes(num_rows=num_rows, hidden_size=256, rank=64, num_vocab=60000, num_candidates=2048, num_outputs=16)
    case = with_rows(random_case(sizes, "float16", ranking_type, 22))
    norms = torch.exp(1.2 * torch.randn(sizes.num_vocab, generator=torch.Generator().manual_seed(22)))
    norms = torch.sort(norms.clamp(max=40), descending=True).values
    case.w_head.copy_((case.w_head.float() * norms[:, None]).half())
    if case.w_vocab_scales is None:
        case.w_vocab.copy_((case.w_vocab.float() * norms[:, None]).half())
    else:
        case.w_vocab_scales.mul_(norms)
    check_on(kernels, case, path)


@pytest.mark.parametrize("first", [0, 30000, 59000])
def test_candidates_that_lie_together_agree(kernels, path, first):
    sizes = Sizes(num_rows=4, hidden_size=128, rank=64, num_vocab=60000, num_candidates=2048, num_outputs=16)
    case = with_rows(random_case(sizes, "float16", "float16", 23))
    case.w_vocab[first : first + 1000] *= 16
    check_on(kernels, case, path)


@pytest.mark.parametrize("offset", [1, 2, 4, 8])
def test_inputs_aligned_to_their_elements_alone_agree(kernels, offset):
    for ranking_type in ("float16", "int8"):
        case = random_case(PLAIN, "float16", ranking_type, 24)
        check(case, run(kernels, case, HeadPath.AUTO, offset))


@pytest.mark.parametrize("requests", [None, (0, 0, 0, 0, 0)])
def test_the_same_input_gives_the_same_bits(kernels, path, requests):
    sizes = replace(PLAIN, num_vocab=50000, num_candidates=2048, num_outputs=64)
    case = with_rows(random_case(sizes, "float16", "float16", 25), request_of_row=requests)
    skip_unless_taken(kernels, case, path)
    head = DeviceHead(kernels, case, path)
    head.launch()
    first = head.read().bits()
    for _ in range(30):
        head.launch()
        assert head.read().bits() == first


def test_a_launch_is_captured_in_a_graph(kernels, path):
    case = random_case(PLAIN, "float16", "float16", 26)
    skip_unless_taken(kernels, case, path)
    head = DeviceHead(kernels, case, path)
    head.launch()
    expected = head.read().bits()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        head.launch()
    other = random_case(PLAIN, "float16", "float16", 27)
    head.set_hidden(other.hidden)
    graph.replay()
    check(replace(case, hidden=other.hidden), head.read())
    head.set_hidden(case.hidden)
    graph.replay()
    assert head.read().bits() == expected


def test_optional_outputs_may_be_null(kernels, path):
    case = random_case(PLAIN, "float16", "float16", 28)
    skip_unless_taken(kernels, case, path)
    head = DeviceHead(kernels, case, path)
    head.launch()
    expected = head.read()
    again = DeviceHead(kernels, case, path)
    again.launch(chosen_ids=0)
    found = again.read()
    assert np.array_equal(found.candidate_ids, expected.candidate_ids)
    assert np.array_equal(found.candidate_logits, expected.candidate_logits)
    assert (found.chosen_ids == -1234567).all()


def test_a_change_of_path_or_of_mates_keeps_the_candidates(kernels):
    case = random_case(replace(PLAIN, num_rows=7), "float16", "int8", 29)
    together = run(kernels, case, HeadPath.AUTO)
    sizes = replace(PLAIN, num_rows=1)
    for m in range(7):
        alone = run(kernels, replace(case, sizes=sizes, hidden=case.hidden[m : m + 1].clone()), HeadPath.AUTO)
        assert np.array_equal(alone.candidate_ids[0], together.candidate_ids[m])


@pytest.mark.parametrize("ranking_type", ["float16", "int8"])
def test_the_paths_agree_on_every_row(kernels, ranking_type):
    sizes = replace(PLAIN, num_rows=16, num_vocab=50000, num_candidates=2048)
    case = random_case(sizes, "float16", ranking_type, 32)
    skip_unless_taken(kernels, case, HeadPath.FUSED)
    fused, general = run(kernels, case, HeadPath.FUSED), run(kernels, case, HeadPath.GENERAL)
    assert np.array_equal(fused.candidate_ids, general.candidate_ids)


@pytest.mark.parametrize("num_rows", [2, 16])
def test_a_row_does_not_depend_on_its_mates(kernels, path, num_rows):
    """To the bit: sums are in the same order whatever else the launch holds."""
    case = random_case(replace(PLAIN, num_rows=num_rows), "float16", "float16", 33)
    skip_unless_taken(kernels, case, path)
    together = run(kernels, case, path)
    alone = replace(case, sizes=replace(case.sizes, num_rows=1), hidden=case.hidden[1:2].clone())
    found = run(kernels, alone, path)
    assert np.array_equal(found.candidate_ids[0], together.candidate_ids[1])
    assert np.array_equal(found.candidate_logits[0], together.candidate_logits[1])


def test_a_shape_that_only_the_general_path_takes_is_refused_by_the_fused(kernels):
    shape = replace(random_case(PLAIN, "float16", "float16", 34).shape(HeadPath.FUSED), hidden_size=99)
    assert kernels.head_chosen_path(replace(shape, path=HeadPath.AUTO)) is HeadPath.GENERAL
    with pytest.raises(KernelError, match="fused path does not take this shape") as caught:
        kernels.head_workspace_bytes(shape)
    assert caught.value.name == "invalid_shape"


def test_pointers_that_only_the_general_path_takes_are_refused_by_the_fused(kernels):
    case = random_case(PLAIN, "float16", "float16", 35)
    skip_unless_taken(kernels, case, HeadPath.FUSED)
    with pytest.raises(KernelError, match="multiples of 16 bytes") as caught:
        run(kernels, case, HeadPath.FUSED, offset=1)
    assert caught.value.name == "invalid_parameter"


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True, database=None)
@hypothesis.given(data=strategies.data())
def test_random_shapes_agree(kernels, data):
    draw = data.draw
    group_size = draw(strategies.sampled_from([1, 1, 1, 2, 5, 16]))
    num_vocab = draw(strategies.integers(1, 5000))
    most = num_vocab // group_size
    whole_groups = draw(strategies.booleans()) and most > 0
    num_candidates = draw(strategies.integers(1, most)) * group_size if whole_groups else num_vocab
    num_rows = draw(strategies.sampled_from([1, 2, 5, 10, 16, 20, 64]))
    sizes = Sizes(
        num_rows=num_rows,
        hidden_size=draw(strategies.integers(1, 300)),
        rank=draw(strategies.integers(1, 150)),
        num_vocab=num_vocab,
        num_candidates=num_candidates,
        num_outputs=draw(strategies.integers(1, min(num_candidates, 300))),
        group_size=group_size,
    )
    hidden_type, ranking_type = draw(strategies.sampled_from(TYPES))
    case = random_case(
        sizes, hidden_type, ranking_type, draw(strategies.integers(0, 1000)), whole=draw(strategies.booleans())
    )
    requests = draw(strategies.none() | strategies.lists(strategies.integers(0, 3), min_size=64, max_size=64))
    case = replace(case, request_of_row=None if requests is None else tuple(requests[:num_rows]))
    for path in PATHS:
        if takes(kernels, case, path):
            check(case, run(kernels, case, path))


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"num_rows": 65}, "too_many_rows", "num_rows: expected at most 64, found 65"),
        ({"num_rows": 0}, "invalid_shape", "num_rows: expected 1 to 64, found 0"),
        ({"hidden_size": 0}, "invalid_shape", "hidden_size"),
        ({"rank": 8193}, "invalid_shape", "rank"),
        ({"num_vocab": 2**20 + 1}, "invalid_shape", "num_vocab"),
        ({"num_candidates": 9002}, "too_many_candidates", "expected at most num_vocab, 9001, found 9002"),
        ({"num_candidates": 0}, "invalid_shape", "num_candidates"),
        ({"num_outputs": 258}, "too_many_outputs", "expected at most 257, found 258"),
        ({"num_outputs": 0}, "invalid_shape", "num_outputs"),
        ({"group_size": 16}, "invalid_shape", "expected a multiple of group_size, 16"),
        ({"group_size": 257}, "invalid_shape", "group_size"),
        ({"hidden_type": 2}, "unsupported_type", "hidden_type"),
        ({"ranking_type": 1}, "unsupported_type", "ranking_type"),
        ({"ranking_type": 9}, "unsupported_type", "ranking_type"),
        ({"path": 3}, "invalid_parameter", "path"),
    ],
)
def test_shapes_that_have_no_kernel_are_refused(kernels, changes, name, words):
    shape = replace(random_case(PLAIN, "float16", "float16", 30).shape(HeadPath.AUTO), **changes)
    with pytest.raises(KernelError, match=words) as caught:
        kernels.head_workspace_bytes(shape)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("pointer", "change", "name"),
    [
        ("hidden", 1, "misaligned_pointer"),
        ("w_down", 1, "misaligned_pointer"),
        ("w_vocab", 1, "misaligned_pointer"),
        ("w_head", 1, "misaligned_pointer"),
        ("candidate_ids", 2, "misaligned_pointer"),
        ("candidate_logits", 2, "misaligned_pointer"),
        ("log_sum_exp", 2, "misaligned_pointer"),
        ("chosen_ids", 2, "misaligned_pointer"),
        ("workspace", 128, "misaligned_pointer"),
        ("workspace_bytes", -1, "workspace_too_small"),
        ("hidden", None, "null_pointer"),
        ("w_vocab_scales", None, "null_pointer"),
        ("workspace", None, "null_pointer"),
        ("log_sum_exp", None, "null_pointer"),
    ],
)
def test_pointers_that_no_kernel_takes_are_refused(kernels, pointer, change, name):
    ranking_type = "int8" if pointer == "w_vocab_scales" else "float16"
    head = DeviceHead(kernels, random_case(PLAIN, "float16", ranking_type, 31), HeadPath.AUTO)
    value = 0 if change is None else getattr(head.arguments, pointer) + change
    with pytest.raises(KernelError, match="workspace" if pointer == "workspace_bytes" else pointer) as caught:
        head.launch(**{pointer: value})
    assert caught.value.name == name
    found = head.read()
    assert (found.candidate_ids == -1234567).all()
