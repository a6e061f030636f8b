"""Compute the training step in C, compiled on first use."""
