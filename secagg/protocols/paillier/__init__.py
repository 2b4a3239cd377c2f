"""Sums under Paillier encryption, with one key or a threshold key."""
