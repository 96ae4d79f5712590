"""LossyAccept's kernel as a call for ``time_call``, with the memory that it needs: chains of one rule."""

from dataclasses import dataclass

import torch
from draftsmith.plugins.accept_kernel import NUM_FLOATS, SHARED_NOISE, AcceptArguments, AcceptKernel, AcceptShape
from draftsmith.plugins.kernel_library import ElementType, KernelLibrary
from draftsmith.plugins.reference.accept_step import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Parameters that all requests have."""

    rule: Rule = Rule.EXACT
    first: float = 0.0
    second: float = 0.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    shared_noise: bool = True


class OurAccept:
    """``launch(index)`` enqueues the walk over a call's logits; the results are in its attributes."""

    def __init__(
        self, library: KernelLibrary, logits: list[torch.Tensor], tokens: list[torch.Tensor], choice: Choice
    ) -> None:
        requests, nodes, vocab = logits[0].shape
        self._kernel = AcceptKernel(library)
        self._shape = AcceptShape(
            num_requests=requests,
            max_nodes=nodes,
            num_vocab=vocab,
            num_candidates=0,
            logits_type=ElementType.FLOAT16,
            clean_counters=True,
        )
        num_bytes, _ = self._kernel.workspace_bytes(self._shape)
        flags = SHARED_NOISE if choice.shared_noise else 0
        floats = [choice.temperature, choice.top_p, choice.min_p, choice.first, choice.second, float("inf"), 0.0, 0.0]
        assert len(floats) == NUM_FLOATS
        given = {
            "parents": torch.arange(-1, nodes - 1, dtype=torch.int32).repeat(requests, 1),
            "num_nodes": torch.full((requests,), nodes, dtype=torch.int32),
            "row_floats": torch.tensor([floats] * requests),
            "row_ints": torch.tensor([[int(choice.rule), choice.top_k, flags, 0]] * requests, dtype=torch.int32),
            "row_keys": torch.stack([torch.arange(requests) * 7919, torch.full((requests,), 100)], 1),
            "workspace": torch.zeros(num_bytes, dtype=torch.uint8),
        }
        self._kept = {name: tensor.cuda() for name, tensor in given.items()}
        self._tokens = [torch.nn.functional.pad(one, (1, 0)).int() for one in tokens]
        self._logits = logits
        self.accepted_nodes = torch.empty(requests, nodes, dtype=torch.int32, device="cuda")
        self.accepted_length, self.bonus_token, self.flags, self.recovery_state = torch.empty(
            4, requests, dtype=torch.int32, device="cuda"
        )
        self.divergence, self.regret_nats = torch.empty(2, requests, device="cuda")
        self._num_bytes = num_bytes

    def launch(self, index: int) -> None:
        """Enqueue on the current stream."""
        kept = {name: tensor.data_ptr() for name, tensor in self._kept.items()}
        arguments = AcceptArguments(
            **kept,
            logits=self._logits[index].data_ptr(),
            token_ids=self._tokens[index].data_ptr(),
            candidate_ids=0,
            candidate_log_probs=0,
            relaxation=0,
            accepted_nodes=self.accepted_nodes.data_ptr(),
            accepted_length=self.accepted_length.data_ptr(),
            bonus_token=self.bonus_token.data_ptr(),
            divergence=self.divergence.data_ptr(),
            regret_nats=self.regret_nats.data_ptr(),
            flags=self.flags.data_ptr(),
            recovery_state=self.recovery_state.data_ptr(),
            workspace_bytes=self._num_bytes,
        )
        self._kernel.launch(self._shape, arguments, torch.cuda.current_stream().cuda_stream)
