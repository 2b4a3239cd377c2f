"""A site's policy, and the guard that applies it."""
