"""Tests mirror the sources; shared fixtures are in ``conftest.py``, tiny checkpoints in ``tiny_models.py``."""
