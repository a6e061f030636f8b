"""Read sound from files, bytes, arrays, pipes and microphones, as mono float32 at 16 kHz."""
