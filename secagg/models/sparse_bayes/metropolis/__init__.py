"""Metropolis steps for the entries of a graph, and for rotations of its rows."""
