"""What the runtime raises besides ``RequestError`` and ``ManifestError``."""

from draftsmith.model_repo.contract.errors import DraftsmithError


class EngineError(DraftsmithError):
    """An engine cannot be loaded or a step failed; the model is not ready any more."""
