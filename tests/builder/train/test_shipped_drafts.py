"""The drafts that ship: small enough, whole, found by their target's checksum, with card and notice."""

from pathlib import Path

import numpy as np
import pytest
from draftsmith.builder import shipped_drafts
from draftsmith.builder.draft.checkpoint import DraftCheckpoint
from draftsmith.builder.draft.open import open_draft
from draftsmith.builder.shipped_drafts import find_shipped_draft

FOLDER = Path(shipped_drafts.__file__).parent
GEMMA = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.mark.parametrize(
    ("checksum", "name", "layers", "most_bytes"),
    [(SMOLLM2, "smollm2-135m-instruct", (2, 15, 27), 16e6), (GEMMA, "gemma-3-270m", (2, 9, 15), 24e6)],
)
def test_a_shipped_draft_is_found_and_whole(
    checksum: str, name: str, layers: tuple[int, ...], most_bytes: float
) -> None:
    folder = FOLDER / name

    assert find_shipped_draft(checksum) == folder
    assert (folder / "model.safetensors").stat().st_size < most_bytes
    draft = open_draft(folder)
    assert isinstance(draft, DraftCheckpoint)
    assert draft.format == "specvocab"
    assert draft.target_sha256 == checksum
    assert draft.spec.feature_layers == layers
    assert draft.ranking is not None
    assert draft.ranking.num_candidates == 2048
    assert np.isfinite(draft.weights.read("fc.weight")).all()
    assert "## Measured" in (folder / "README.md").read_text()
    assert (folder / "NOTICE.txt").is_file()


def test_gemmas_derivative_comes_with_its_terms() -> None:
    folder = FOLDER / "gemma-3-270m"

    assert "Gemma is provided under and subject to the Gemma Terms of Use" in (folder / "NOTICE.txt").read_text()
    assert "Section 3: DISTRIBUTION AND RESTRICTIONS" in (folder / "GEMMA_TERMS.txt").read_text()


def test_no_draft_ships_for_another_target() -> None:
    assert find_shipped_draft("0" * 64) is None
