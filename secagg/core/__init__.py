"""What everything stands on: bytes, keys, randomness, the ring, private files."""
