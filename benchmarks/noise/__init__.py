"""The cost of noise, and what it does to results."""
