"""Cells, process pool and cache: how experiments and reproductions are computed."""
