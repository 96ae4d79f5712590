"""The ``build-engine`` command: one file a command, ``app`` joins them, ``main`` is the console entry."""

from .app import main

__all__ = ["main"]
