"""Sparse Bayesian models (Kidd, Wang, Xu and Ni 2023)."""
