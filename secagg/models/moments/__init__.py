"""One secure sum of moments, and the analyses that need nothing else."""
