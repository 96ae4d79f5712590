"""Names, types and shapes of the tensors that a served model takes and gives.

The names are those that Triton's LLM users already send (design 7); ours are added beside them. ``dims`` are Triton's:
-1 is any length. Models have ``max_batch_size: 0``, so dims are the whole shape.
"""

from dataclasses import dataclass
from typing import Literal

TensorType = Literal["BYTES", "INT32", "UINT64", "FP32", "BOOL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorField:
    """One input or output of a served model; ``help`` is what config.pbtxt and the docs say of it."""

    name: str
    type: TensorType
    dims: tuple[int, ...]
    help: str

    @property
    def config_type(self) -> str:
        """The type's name in config.pbtxt (``TYPE_STRING`` for BYTES)."""
        return "TYPE_STRING" if self.type == "BYTES" else f"TYPE_{self.type}"


REQUEST_FIELDS: tuple[TensorField, ...] = (
    TensorField(name="text_input", type="BYTES", dims=(1,), help="prompt as UTF-8 text, sent as it is"),
    TensorField(name="input_ids", type="INT32", dims=(-1,), help="prompt as token ids (instead of text_input)"),
    TensorField(
        name="messages", type="BYTES", dims=(1,), help="JSON list of {role, content}, put into the chat template"
    ),
    TensorField(name="stream", type="BOOL", dims=(1,), help="true: a response per accepted block; false: one response"),
    TensorField(name="max_tokens", type="INT32", dims=(1,), help="most tokens to generate (default 128)"),
    TensorField(name="min_tokens", type="INT32", dims=(1,), help="end and stop are ignored before this many tokens"),
    TensorField(name="temperature", type="FP32", dims=(1,), help="0: greedy (default)"),
    TensorField(name="top_k", type="INT32", dims=(1,), help="0: off"),
    TensorField(name="top_p", type="FP32", dims=(1,), help="1: off"),
    TensorField(name="min_p", type="FP32", dims=(1,), help="0: off"),
    TensorField(name="repetition_penalty", type="FP32", dims=(1,), help="1: off; prompt and output count"),
    TensorField(name="presence_penalty", type="FP32", dims=(1,), help="0: off; output counts"),
    TensorField(name="frequency_penalty", type="FP32", dims=(1,), help="0: off; output counts"),
    TensorField(name="seed", type="UINT64", dims=(1,), help="same seed, same text, whatever runs beside it"),
    TensorField(name="stop_words", type="BYTES", dims=(-1,), help="strings that end the text; not shown"),
    TensorField(name="bad_words", type="BYTES", dims=(-1,), help="strings that are never generated"),
    TensorField(name="end_id", type="INT32", dims=(-1,), help="end token ids instead of the model's own"),
    TensorField(name="ignore_eos", type="BOOL", dims=(1,), help="true: no end token ends the text"),
    TensorField(name="return_log_probs", type="BOOL", dims=(1,), help="true: output_log_probs is sent"),
    TensorField(name="num_top_log_probs", type="INT32", dims=(1,), help="most probable tokens a position, 0 to 20"),
    TensorField(name="speculate", type="BOOL", dims=(1,), help="false: plain decoding"),
    TensorField(name="max_draft_tokens", type="INT32", dims=(1,), help="most tokens drafted a step, 0 to 64"),
    TensorField(name="draft_depth", type="INT32", dims=(1,), help="longest branch of a draft, 0 to 64"),
    TensorField(name="draft_width", type="INT32", dims=(1,), help="branches followed a level, 1 (a chain) to 16"),
    TensorField(name="draft_method", type="BYTES", dims=(1,), help="auto, model or ngram: who drafts"),
)

RESPONSE_FIELDS: tuple[TensorField, ...] = (
    TensorField(name="text_output", type="BYTES", dims=(1,), help="new text since the last response"),
    TensorField(name="output_ids", type="INT32", dims=(-1,), help="new token ids since the last response"),
    TensorField(name="finish_reason", type="BYTES", dims=(1,), help="empty, or end_id, stop_word, length, cancelled"),
    TensorField(name="num_input_tokens", type="INT32", dims=(1,), help="tokens of the prompt"),
    TensorField(name="num_output_tokens", type="INT32", dims=(1,), help="tokens generated so far"),
    TensorField(name="num_target_steps", type="INT32", dims=(1,), help="target steps after the prefill"),
    TensorField(name="total_draft_tokens", type="INT32", dims=(1,), help="tokens drafted so far"),
    TensorField(name="total_accepted_draft_tokens", type="INT32", dims=(1,), help="drafted tokens accepted so far"),
    TensorField(name="acceptance_rate", type="FP32", dims=(1,), help="accepted / drafted, 0 without drafts"),
    TensorField(name="output_log_probs", type="FP32", dims=(-1,), help="log-probability of each new token, if asked"),
    TensorField(name="top_log_prob_ids", type="INT32", dims=(-1, -1), help="[tokens, n] ids, most probable first"),
    TensorField(name="top_log_probs", type="FP32", dims=(-1, -1), help="[tokens, n] log-probabilities"),
)


class FinishReason:
    """Values of ``finish_reason``; the empty string means that more follows."""

    RUNNING = ""
    END_ID = "end_id"
    STOP_WORD = "stop_word"
    LENGTH = "length"
    CANCELLED = "cancelled"
