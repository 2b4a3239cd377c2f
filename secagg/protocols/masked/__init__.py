"""Masked sums with dropout recovery (Bonawitz et al. 2017; Bell et al. 2020)."""
