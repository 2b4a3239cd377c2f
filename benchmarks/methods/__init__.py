"""The cost and the quality of methods without noise, other than networks."""
