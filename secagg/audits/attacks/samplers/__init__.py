"""Attacks on the sparse methods, whose sites draw at random."""
