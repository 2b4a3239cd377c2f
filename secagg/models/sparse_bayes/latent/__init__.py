"""Draws of exact moments and of what depends on them, given noisy ones."""
