"""Experiments on learning graphs: data, scores, and one module for each kind of cell."""
