"""Epsilon and delta of releases, budgets, and the size of the noise."""
