"""Job files, the sites' records, the design matrix, and the list of methods and protocols."""
