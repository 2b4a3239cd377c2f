"""Checks of guarantees: noise, claimed epsilon, keys and logs."""
