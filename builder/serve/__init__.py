"""Starts a real Triton server with a model repository, waits until its models answer, and ends it cleanly.

``locate`` finds the server, ``preflight`` finds what would stop it before it starts, ``command`` says how it is
started, ``process`` runs it.
"""

from .options import ServeOptions
from .process import ServerProcess

__all__ = ["ServeOptions", "ServerProcess"]
