"""Inputs for SpecVocabHead, launches of it over device memory with guards, and its comparison with the reference."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from draftsmith.plugins.kernel_library import (
    ElementType,
    HeadArguments,
    HeadPath,
    HeadShape,
    KernelError,
    KernelLibrary,
)
from draftsmith.plugins.reference.spec_vocab_head import (
    HeadOptions,
    HeadOutputs,
    HeadWeights,
    HiddenType,
    RankingType,
    quantize_projected,
    ranking_scores,
    round_to,
    spec_vocab_head,
)

TORCH_TYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "float8_e4m3": torch.float8_e4m3fn,
}
# Error of a sum, as a share of the sum of the products' magnitudes: fp32 in the order of the hardware.
SUM_TOLERANCE = 2e-6
GUARD = 64
MOST_SHARING_ROWS = 16
SENTINEL = -1234567

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    num_rows: int
    hidden_size: int
    rank: int
    num_vocab: int
    num_candidates: int
    num_outputs: int
    group_size: int = 1

    @property
    def num_ranked(self) -> int:
        return -(-self.num_vocab // self.group_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadCase:
    """Tensors on the CPU as they are stored."""

    sizes: Sizes
    hidden_type: HiddenType
    ranking_type: RankingType
    hidden: torch.Tensor
    w_down: torch.Tensor
    w_vocab: torch.Tensor
    w_vocab_scales: torch.Tensor | None
    w_head: torch.Tensor
    request_of_row: tuple[int, ...] | None = None

    @property
    def options(self) -> HeadOptions:
        return HeadOptions(
            hidden_type=self.hidden_type,
            ranking_type=self.ranking_type,
            num_candidates=self.sizes.num_candidates,
            num_outputs=self.sizes.num_outputs,
            group_size=self.sizes.group_size,
        )

    @property
    def weights(self) -> HeadWeights:
        return HeadWeights(
            w_down=numbers(self.w_down),
            w_vocab=numbers(self.w_vocab),
            w_head=numbers(self.w_head),
            w_vocab_scales=None if self.w_vocab_scales is None else numbers(self.w_vocab_scales),
        )

    def shape(self, path: HeadPath) -> HeadShape:
        return HeadShape(
            num_rows=self.sizes.num_rows,
            hidden_size=self.sizes.hidden_size,
            rank=self.sizes.rank,
            num_vocab=self.sizes.num_vocab,
            num_candidates=self.sizes.num_candidates,
            num_outputs=self.sizes.num_outputs,
            group_size=self.sizes.group_size,
            hidden_type=ElementType[self.hidden_type.upper()],
            ranking_type=ElementType[self.ranking_type.upper()],
            path=path,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadResult:
    candidate_ids: npt.NDArray[np.int32]  # [M, out]
    candidate_logits: npt.NDArray[np.float32]  # [M, out]
    log_sum_exp: npt.NDArray[np.float32]  # [M]
    chosen_ids: npt.NDArray[np.int32]  # [M, k]

    def bits(self) -> bytes:
        parts = (self.candidate_ids, self.candidate_logits, self.log_sum_exp, self.chosen_ids)
        return b"".join(part.tobytes() for part in parts)


def numbers(tensor: torch.Tensor) -> Float64Array:
    return tensor.to(torch.float32).to(torch.float64).numpy()


def random_case(
    sizes: Sizes, hidden_type: HiddenType, ranking_type: RankingType, seed: int, *, whole: bool = False
) -> HeadCase:
    """Normal numbers; ``whole``: small whole ones, whose sums are exact and often equal."""
    draw = torch.Generator().manual_seed(seed)

    def fill(name: str, *shape: int, scale: float) -> torch.Tensor:
        if whole:
            return torch.randint(-3, 4, shape, generator=draw).to(torch.float32).to(TORCH_TYPES[name])
        if name == "int8":
            return torch.randint(-127, 128, shape, generator=draw, dtype=torch.int8)
        return (torch.randn(shape, generator=draw) * scale).to(TORCH_TYPES[name])

    is_8_bit = ranking_type in ("int8", "float8_e4m3")
    scales = torch.exp(0.3 * torch.randn(sizes.num_ranked, generator=draw)) / 64
    return HeadCase(
        sizes=sizes,
        hidden_type=hidden_type,
        ranking_type=ranking_type,
        hidden=fill(hidden_type, sizes.num_rows, sizes.hidden_size, scale=1.0),
        w_down=fill(hidden_type, sizes.rank, sizes.hidden_size, scale=sizes.hidden_size**-0.5),
        w_vocab=fill(ranking_type, sizes.num_ranked, sizes.rank, scale=1.0 if is_8_bit else sizes.rank**-0.5),
        w_vocab_scales=(torch.ones_like(scales) if whole else scales) if is_8_bit else None,
        w_head=fill(hidden_type, sizes.num_vocab, sizes.hidden_size, scale=2 * sizes.hidden_size**-0.5),
    )


class GuardedOutput:
    """Elements of a type in the middle of sentinels."""

    def __init__(self, dtype: torch.dtype, *shape: int) -> None:
        count = int(np.prod(shape))
        self._all = torch.full((count + 2 * GUARD,), SENTINEL, dtype=torch.int32, device="cuda")
        self._middle = self._all[GUARD : GUARD + count]
        self._shape, self._dtype = shape, dtype

    @property
    def address(self) -> int:
        return self._middle.data_ptr()

    def read(self, name: str) -> npt.NDArray[np.generic]:
        words = self._all.cpu()
        assert bool((words[:GUARD] == SENTINEL).all()), f"{name}: written before its start"
        assert bool((words[len(words) - GUARD :] == SENTINEL).all()), f"{name}: written behind its end"
        return words[GUARD : len(words) - GUARD].view(self._dtype).reshape(self._shape).numpy()


class DeviceHead:
    """A case's tensors on the device, ``offset`` elements off an aligned address, and memory for its results."""

    def __init__(self, library: KernelLibrary, case: HeadCase, path: HeadPath, offset: int = 0) -> None:
        self.library, self.case, self.shape = library, case, case.shape(path)
        sizes = case.sizes
        self._inputs = {
            "hidden": place(case.hidden, offset),
            "w_down": place(case.w_down, offset),
            "w_vocab": place(case.w_vocab, offset),
            "w_head": place(case.w_head, offset),
        }
        if case.w_vocab_scales is not None:
            self._inputs["w_vocab_scales"] = place(case.w_vocab_scales, 0)
        if case.request_of_row is not None:
            self._inputs["request_of_row"] = torch.tensor(case.request_of_row, dtype=torch.int32, device="cuda")
        self.outputs = {
            "candidate_ids": GuardedOutput(torch.int32, sizes.num_rows, sizes.num_outputs),
            "candidate_logits": GuardedOutput(torch.float32, sizes.num_rows, sizes.num_outputs),
            "log_sum_exp": GuardedOutput(torch.float32, sizes.num_rows),
            "chosen_ids": GuardedOutput(torch.int32, sizes.num_rows, sizes.num_candidates),
        }
        num_bytes = library.head_workspace_bytes(self.shape)
        self._workspace = torch.full((num_bytes + 4096,), 0xAB, dtype=torch.uint8, device="cuda")
        self.arguments = HeadArguments(
            **{name: self._inputs[name].data_ptr() if name in self._inputs else 0 for name in _INPUTS},
            **{name: output.address for name, output in self.outputs.items()},
            workspace=self._workspace.data_ptr(),
            workspace_bytes=num_bytes,
        )

    def launch(self, **changes: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        self.library.head_launch(self.shape, replace(self.arguments, **changes), stream)

    def set_hidden(self, hidden: torch.Tensor) -> None:
        self._inputs["hidden"].copy_(hidden)

    def read(self) -> HeadResult:
        torch.cuda.synchronize()
        assert bool((self._workspace[self.arguments.workspace_bytes :] == 0xAB).all()), "workspace: written too far"
        return HeadResult(**{name: output.read(name) for name, output in self.outputs.items()})  # type: ignore[arg-type]


_INPUTS = ("hidden", "w_down", "w_vocab", "w_vocab_scales", "w_head", "request_of_row")


def place(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """``tensor`` on the device, ``offset`` elements behind an aligned address."""
    count = tensor.numel()
    memory = torch.zeros(count + offset, dtype=torch.uint8, device="cuda") if tensor.element_size() == 1 else None
    if memory is None:
        memory = torch.zeros(count + offset, dtype=tensor.dtype, device="cuda")
    part = memory[offset:].view(tensor.dtype).view(tensor.shape)
    part.copy_(tensor)
    return part


def takes(library: KernelLibrary, case: HeadCase, path: HeadPath) -> bool:
    """Whether a path has kernels for the case; where rows share, the fused one has for as many as one pass holds."""
    if path is not HeadPath.FUSED:
        return True
    try:
        library.head_chosen_path(case.shape(path))
    except KernelError:
        return False
    return case.request_of_row is None or case.sizes.num_rows <= MOST_SHARING_ROWS


def run(library: KernelLibrary, case: HeadCase, path: HeadPath, offset: int = 0) -> HeadResult:
    head = DeviceHead(library, case, path, offset)
    head.launch()
    return head.read()


def check(case: HeadCase, result: HeadResult) -> None:
    """Compare a result with the reference, every row; raises AssertionError with what differs."""
    expected = spec_vocab_head(numbers(case.hidden), case.weights, case.options, _requests(case))
    check_chosen(case, result, expected)
    check_outputs(case, result, expected)


def _requests(case: HeadCase) -> npt.NDArray[np.int32] | None:
    return None if case.request_of_row is None else np.array(case.request_of_row, np.int32)


def chosen_of(result: HeadResult, m: int) -> npt.NDArray[np.int32]:
    ids = result.chosen_ids[m]
    count = int((ids >= 0).sum())
    assert (ids[count:] == -1).all(), f"row {m}: chosen ids behind a -1"
    assert (np.diff(ids[:count]) > 0).all(), f"row {m}: chosen ids are not ascending"
    return ids[:count]


def check_chosen(case: HeadCase, result: HeadResult, expected: HeadOutputs) -> None:
    """Members that differ must lie within rounding of the threshold."""
    differing = {
        m: np.setxor1d(chosen_of(result, m), ids) // case.sizes.group_size
        for m, ids in enumerate(expected.chosen_ids)
        if not np.array_equal(chosen_of(result, m), ids)
    }
    if not differing:
        return
    scores, is_broken = ranking_scores(numbers(case.hidden), case.weights, case.options)
    slack = score_slack(case)
    for m, items in differing.items():
        assert not is_broken[m], f"row {m}: a broken row chose {chosen_of(result, m)[:8]}"
        assert len(chosen_of(result, m)) == len(expected.chosen_ids[m]), f"row {m}: {len(chosen_of(result, m))} chosen"
        threshold = np.float16(scores[m, expected.chosen_ids[m] // case.sizes.group_size].min())
        limit = np.spacing(np.abs(threshold)).astype(np.float64) + slack[m, items]
        distance = np.abs(scores[m, items].astype(np.float64) - float(threshold))
        far = distance > limit
        assert not far.any(), (
            f"row {m}: {far.sum()} of {len(items)} differing members lie away from the threshold {threshold}: "
            f"items {items[far][:8]}, scores {scores[m, items][far][:8]}, limit {limit[far][:8]}"
        )


def score_slack(case: HeadCase) -> Float64Array:
    """What rounding of sums may change in a score [M, R], through h' and directly."""
    weights, hidden = case.weights, numbers(case.hidden)
    with np.errstate(all="ignore"):
        projected = hidden @ weights.w_down.T
        error = SUM_TOLERANCE * (np.abs(hidden) @ np.abs(weights.w_down).T)

        def rounded(values: Float64Array) -> Float64Array:
            if case.ranking_type == "int8":
                return quantize_projected(values)
            return round_to(values, case.hidden_type)

        change = np.abs(rounded(projected + error) - rounded(projected - error))
        slack = (change + SUM_TOLERANCE * np.abs(rounded(projected))) @ np.abs(weights.w_vocab).T
    return slack if weights.w_vocab_scales is None else slack * weights.w_vocab_scales


def check_outputs(case: HeadCase, result: HeadResult, expected: HeadOutputs) -> None:
    """Logits, order and sums, over the candidates that the kernel itself chose."""
    requests = _requests(case)
    w_head, hidden = case.weights.w_head, numbers(case.hidden)
    for m in range(case.sizes.num_rows):
        ids, logits, total = result.candidate_ids[m], result.candidate_logits[m], result.log_sum_exp[m]
        if np.isnan(expected.log_sum_exp[m]):
            assert (ids == -1).all(), f"row {m}: ids {ids[:8]} of a broken row"
            assert np.isnan(logits).all(), f"row {m}: logits of a broken row"
            assert np.isnan(total), f"row {m}: log-sum-exp of a broken row"
            continue
        mates = [m] if requests is None else np.flatnonzero(requests == requests[m])
        candidates = np.unique(np.concatenate([chosen_of(result, i) for i in mates]))
        with np.errstate(all="ignore"):
            exact = w_head[candidates] @ hidden[m]
            error = SUM_TOLERANCE * (np.abs(w_head[candidates]) @ np.abs(hidden[m])) + 1e-30
        check_row(f"row {m}", (candidates, exact, error), ids, logits)
        greatest = exact.max()
        if np.isfinite(greatest):
            sum_of_all = greatest + np.log(np.exp(exact - greatest).sum())
            limit = error.max() + 4e-6 * max(1.0, abs(sum_of_all))
            assert abs(total - sum_of_all) <= limit, f"row {m}: log-sum-exp {total}, expected {sum_of_all}"
        else:
            assert total == greatest, f"row {m}: log-sum-exp {total}, expected {greatest}"


def check_row(
    name: str,
    candidates: tuple[npt.NDArray[np.int32], Float64Array, Float64Array],
    ids: npt.NDArray[np.int32],
    logits: npt.NDArray[np.float32],
) -> None:
    """``candidates``: ids ascending, their logits in float64, and how far fp32 may be off."""
    known, exact, error = candidates
    count = min(len(ids), len(known))
    assert (ids[count:] == -1).all(), f"{name}: ids behind the last candidate"
    assert (logits[count:] == -np.inf).all(), f"{name}: logits behind the last candidate"
    found, values = ids[:count], logits[:count].astype(np.float64)
    assert len(np.unique(found)) == count, f"{name}: an id twice: {found[:16]}"
    assert np.isin(found, known).all(), f"{name}: ids that are no candidates: {found[~np.isin(found, known)][:8]}"
    at = np.searchsorted(known, found)
    with np.errstate(invalid="ignore"):
        off = ~((np.abs(values - exact[at]) <= error[at]) | (values == exact[at]))
        assert not off.any(), f"{name}: logits {values[off][:4]}, expected {exact[at][off][:4]} (ids {found[off][:4]})"
        falls = np.diff(values)
        in_order = (falls < 0) | ((values[1:] == values[:-1]) & (np.diff(found) > 0))
    assert in_order.all(), f"{name}: not in order at {np.flatnonzero(~in_order)[:4]}"
    left_out = np.setdiff1d(np.arange(len(known)), at)
    if len(left_out):
        with np.errstate(invalid="ignore"):
            better = exact[left_out] - error[left_out] > values[-1] + error[at[-1]]
        assert not better.any(), f"{name}: left out {known[left_out][better][:8]}, better than the last, {values[-1]}"
