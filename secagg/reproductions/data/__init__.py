"""Data sets that the experiments read, and simulators."""
