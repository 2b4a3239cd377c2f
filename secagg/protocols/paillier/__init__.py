"""Sums under Paillier encryption, with a key that every site holds or with a key in shares."""
