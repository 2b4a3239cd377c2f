"""Basics that all other packages use: encoding, keys, randomness, ring vectors, private files."""
