"""Run trained models on test sets, and compute metrics of their answers."""
