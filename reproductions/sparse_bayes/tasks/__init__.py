"""Experiments on federated sparse Bayesian models: their records, and one module a kind of cell."""
