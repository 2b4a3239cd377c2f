"""The cost and the quality of methods without noise."""
