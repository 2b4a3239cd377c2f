"""Tasks of the cells of FedNGM's tables."""
