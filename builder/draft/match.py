"""Whether a draft belongs to a target: sizes and checksum of an EAGLE-3 draft, token strings of a language model."""

from pathlib import Path

from ..checkpoint.source import Checkpoint
from ..checkpoint.tokenizer import load_tokenizer
from ..errors import CheckpointError
from .checkpoint import DraftCheckpoint

ACTION = "Choose a draft that was trained for this target, train one (build-engine train-draft), or use --draft none."


def check_match(draft: DraftCheckpoint | Checkpoint, target: Checkpoint, target_sha256: str) -> None:
    """Raise ``CheckpointError`` naming what differs, both values and what to do.

    ``target_sha256``: ``hash_checkpoint`` of the target. A language model must have the same token string for every id
    that both have; padding rows may differ.
    """
    if isinstance(draft, DraftCheckpoint):
        _match_eagle(draft, target, target_sha256)
    else:
        _match_tokens(draft, target)


def _match_eagle(draft: DraftCheckpoint, target: Checkpoint, target_sha256: str) -> None:
    spec, path = draft.spec, draft.path
    for subject, own, others in (
        ("draft's target hidden size", spec.target_hidden_size, target.spec.hidden_size),
        ("draft's vocabulary size", spec.vocab_size, target.spec.vocab_size),
    ):
        if own != others:
            raise _error(subject, f"{others}, that of {target.path.name}", str(own), path)
    if not spec.feature_layers:
        raise _error("draft's feature layers", "them, or to be opened with its target", "none", path)
    last = target.spec.num_layers - 1
    if max(spec.feature_layers) > last:
        expected = f"inputs of layers 0 to {last}, those of {target.path.name}"
        raise _error("draft's feature layers", expected, ", ".join(map(str, spec.feature_layers)), path)
    borrows = [part for part, own in (("embedding", spec.own_embedding), ("head", spec.own_head)) if not own]
    if borrows and spec.hidden_size != target.spec.hidden_size:
        expected = f"{target.spec.hidden_size}, since it has no {' and no '.join(borrows)} of its own"
        raise _error("draft's hidden size", expected, str(spec.hidden_size), path)
    if draft.target_sha256 is not None and draft.target_sha256 != target_sha256:
        expected = f"{target_sha256}, that of {target.path.name}"
        raise _error("draft's target checksum (SHA-256)", expected, draft.target_sha256, path)


def _match_tokens(draft: Checkpoint, target: Checkpoint) -> None:
    own, others = _read_tokens(draft), _read_tokens(target)
    for token_id in sorted(own.keys() & others.keys()):
        if own[token_id] != others[token_id]:
            expected = f"{others[token_id]!r}, that of {target.path.name}"
            raise _error(f"draft's token {token_id}", expected, repr(own[token_id]), draft.path)
    for subject, tokens, rows in (
        ("draft's embedding rows", target.tokenizer.vocab_size, draft.spec.vocab_size),
        ("target's embedding rows", draft.tokenizer.vocab_size, target.spec.vocab_size),
    ):
        if tokens > rows:
            raise _error(subject, f"at least {tokens}, one for each token of the other model", str(rows), draft.path)


def _read_tokens(checkpoint: Checkpoint) -> dict[int, str]:
    tokenizer = load_tokenizer(checkpoint.tokenizer.tokenizer_json, str(checkpoint.path))
    vocab: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    return {token_id: token for token, token_id in vocab.items()}


def _error(subject: str, expected: str, found: str, path: Path) -> CheckpointError:
    return CheckpointError(subject, expected=expected, found=found, where=str(path), action=ACTION)
