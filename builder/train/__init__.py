"""Training a draft for a target (needs torch): text made by the target itself, training-time test, the ranking."""
