"""Other libraries on the same sums, and reference programs."""
