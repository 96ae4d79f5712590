"""Where the draft of a build is: what was named, or what ships for the target."""

from pathlib import Path

from ..draft_options import AUTO, NONE, DraftChoice
from ..errors import UsageError
from ..shipped_drafts import find_shipped_draft


def find_draft(choice: DraftChoice, target_sha256: str) -> Path | None:
    """Where the draft is; None where none was asked for, or none ships for this target."""
    if choice.source == NONE:
        return None
    if choice.source != AUTO:
        return Path(choice.source)
    path = find_shipped_draft(target_sha256)
    if path is None and choice != DraftChoice():
        raise UsageError("--draft", expected="a draft's folder beside the other --draft options", found="none")
    return path
