"""Find words in a live stream, and report each once."""
