"""Data sets and simulators of the experiments."""
