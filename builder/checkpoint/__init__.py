"""Reading checkpoints: Hugging Face folders and GGUF files behind one protocol."""
