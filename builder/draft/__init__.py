"""Draft checkpoints of every format, read into one form."""
