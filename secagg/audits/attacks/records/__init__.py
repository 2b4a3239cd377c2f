"""Attacks that recover records, or who is among them."""
