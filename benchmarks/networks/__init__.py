"""The cost and the quality of networks."""
