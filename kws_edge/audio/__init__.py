"""Sound in: files, bytes, arrays, pipes and microphones become mono float32 at 16 kHz."""
