"""Drafts that come with draftsmith, trained for targets that install as packages; each folder has a model card."""

import json
from pathlib import Path


def find_shipped_draft(target_sha256: str) -> Path | None:
    """The folder of the draft that was trained for a target (``hash_checkpoint``), None where none ships."""
    for config in sorted(Path(__file__).resolve().parent.glob("*/config.json")):
        facts = json.loads(config.read_text(encoding="utf-8")).get("draftsmith", {})
        if facts.get("target_sha256") == target_sha256:
            return config.parent
    return None
