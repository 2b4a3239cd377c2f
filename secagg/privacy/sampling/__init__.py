"""Random whole numbers with exactly known distributions, used as noise."""
