"""What trained models answer, and the metrics of it."""
