"""The ranking of a speculative vocabulary that comes with a draft (SpecVocab's layout, and ours)."""

from ..errors import CheckpointError
from ..model.config import Config
from ..spec.ranking import Ranking
from .tensor_names import RANKING_DOWN, RANKING_VOCABULARY, to_stored_name
from .tensors import DraftTensors

SECTION = "vocabulary_speculator"
KNOWN_KEYS = {"intermediate_size", "num_candidate_tokens"}


def read_ranking(config: Config, tensors: DraftTensors, *, hidden_size: int, vocab_size: int) -> Ranking:
    """Both matrices, in the sizes that the config's ``vocabulary_speculator`` names; ``CheckpointError`` otherwise."""
    section = config.section(SECTION)
    if section is None:
        raise config.error(SECTION, "the ranking's sizes beside its tensors", "none")
    for key, value in section.values.items():
        if value is not None and key not in KNOWN_KEYS:
            raise section.error(key, "one of " + ", ".join(sorted(KNOWN_KEYS)), f"{value!r:.80}", "Not supported.")
    rank = section.count("intermediate_size", most=1 << 16)
    num_candidates = section.count("num_candidate_tokens", most=vocab_size)
    for name, shape in ((RANKING_DOWN, (rank, hidden_size)), (RANKING_VOCABULARY, (vocab_size, rank))):
        if name not in tensors.shapes:
            raise CheckpointError(
                f"tensor `{to_stored_name(name, prefix='')}`",
                expected=f"it in the draft with shape {list(shape)}",
                found="none",
                where=str(tensors.path),
                action="Without it the speculative vocabulary is not complete.",
            )
        if tensors.shapes[name] != shape:
            found = str(list(tensors.shapes[name]))
            stored = tensors.stored_name(name)
            raise CheckpointError(
                f"tensor `{stored}`", expected=f"shape {list(shape)}", found=found, where=str(tensors.path)
            )
    return Ranking(
        down=tensors.read(RANKING_DOWN), vocabulary=tensors.read(RANKING_VOCABULARY), num_candidates=num_candidates
    )
