"""Experiments on learning graphs: their data, their scores, and one module a kind of cell."""
