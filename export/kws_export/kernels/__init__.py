"""The training step in C, compiled on first use."""
