"""SpecVocabHead's kernels as a call for ``time_call``, with the memory that it needs."""

import torch
from draftsmith.plugins.kernel_library import ElementType, HeadArguments, HeadPath, HeadShape, KernelLibrary
from head_weights import Weights


class OurHead:
    """``launch(index)`` enqueues the head over a call's rows; ids, logits and log-sum-exp are in its attributes."""

    def __init__(
        self,
        library: KernelLibrary,
        weights: Weights,
        hidden: list[torch.Tensor],
        *,
        k: int,
        num_outputs: int,
        ranking: str = "float16",
        group_size: int = 1,
        path: HeadPath = HeadPath.AUTO,
    ) -> None:
        num_rows = len(hidden[0])
        self._library, self._weights, self._hidden = library, weights, hidden
        self._shape = HeadShape(
            num_rows=num_rows,
            hidden_size=weights.shape.hidden_size,
            rank=weights.shape.rank,
            num_vocab=weights.shape.num_vocab,
            num_candidates=k,
            num_outputs=num_outputs,
            group_size=group_size,
            hidden_type=ElementType.FLOAT16,
            ranking_type=ElementType[ranking.upper()],
            path=path,
        )
        self._ranking, self._scales = weights.quantize(ranking, -(-weights.shape.num_vocab // group_size))
        self._workspace = torch.empty(library.head_workspace_bytes(self._shape), dtype=torch.uint8, device="cuda")
        self.ids = torch.empty(num_rows, num_outputs, dtype=torch.int32, device="cuda")
        self.logits = torch.empty(num_rows, num_outputs, device="cuda")
        self.log_sum_exp = torch.empty(num_rows, device="cuda")

    def launch(self, index: int) -> None:
        """Enqueue one call on the current stream."""
        self._launch(index, 0)

    def choose(self, index: int) -> torch.Tensor:
        """int32 [M, k]: the candidates of a call."""
        chosen = torch.empty(len(self.ids), self._shape.num_candidates, dtype=torch.int32, device="cuda")
        self._launch(index, chosen.data_ptr())
        torch.cuda.synchronize()
        return chosen

    def _launch(self, index: int, chosen_ids: int) -> None:
        arguments = HeadArguments(
            hidden=self._hidden[index].data_ptr(),
            w_down=self._weights.down[index].data_ptr(),
            w_vocab=self._ranking[index].data_ptr(),
            w_vocab_scales=self._scales[index].data_ptr() if self._scales else 0,
            w_head=self._weights.head.data_ptr(),
            request_of_row=0,
            candidate_ids=self.ids.data_ptr(),
            candidate_logits=self.logits.data_ptr(),
            log_sum_exp=self.log_sum_exp.data_ptr(),
            chosen_ids=chosen_ids,
            workspace=self._workspace.data_ptr(),
            workspace_bytes=self._workspace.numel(),
        )
        self._library.head_launch(self._shape, arguments, torch.cuda.current_stream().cuda_stream)
