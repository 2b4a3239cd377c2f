"""The tables and figure of the sparse Bayesian models."""
