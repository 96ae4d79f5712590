"""NumPy definitions of the CUDA operators: the specification, and the oracle of their tests."""
