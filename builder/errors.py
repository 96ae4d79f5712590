"""What the builder raises, and the exit code of each.

::

    DraftsmithError
    └── BuilderError            exit 5
        ├── UsageError          exit 2   an option is wrong
        ├── CheckpointError     exit 3   a checkpoint cannot be read or is not supported
        ├── BackendError        exit 4   a backend is missing or of a wrong version
        ├── BuildError          exit 5   building or packaging failed (quality gate included)
        └── ServeError          exit 6   Triton did not start or died
"""

from typing import ClassVar

from draftsmith.model_repo.contract.errors import DraftsmithError


class BuilderError(DraftsmithError):
    """Root of the builder's errors; ``exit_code`` is the command's."""

    exit_code: ClassVar[int] = 5


class UsageError(BuilderError):
    """An option or argument is wrong."""

    exit_code = 2


class CheckpointError(BuilderError):
    """A checkpoint is missing something, is corrupt, or asks for what is not supported."""

    exit_code = 3


class BackendError(BuilderError):
    """A backend is not installed, or its version does not fit."""

    exit_code = 4


class BuildError(BuilderError):
    """Building, checking or packaging failed; nothing was left behind."""

    exit_code = 5


class ServeError(BuilderError):
    """The server did not become ready, or ended by itself."""

    exit_code = 6
