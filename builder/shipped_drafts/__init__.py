"""Drafts that come with draftsmith, trained for targets that install as packages; each folder has a model card."""

import json
from pathlib import Path


def find_shipped_draft(target_sha256: str) -> Path | None:
    """The folder of the draft that was trained for a target (``hash_checkpoint``), None where none ships.

    A draft whose config says ``"pays": false`` is there to be named, not to be taken by itself: look-up was faster.
    """
    for config in sorted(Path(__file__).resolve().parent.glob("*/config.json")):
        facts = json.loads(config.read_text(encoding="utf-8")).get("draftsmith", {})
        if facts.get("target_sha256") == target_sha256 and facts.get("pays", True):
            return config.parent
    return None
