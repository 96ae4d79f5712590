"""Turns built engines into a Triton model repository: staged folders, ``engine.json``, ``config.pbtxt``."""
