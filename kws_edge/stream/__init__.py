"""A live stream: hops in, events out, each word once."""
