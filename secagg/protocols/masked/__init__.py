"""Masked sums, which remain possible if sites drop out (Bonawitz et al. 2017; Bell et al. 2020)."""
