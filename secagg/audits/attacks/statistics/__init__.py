"""Attacks that recover statistics of single sites."""
