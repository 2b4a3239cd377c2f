"""The job file, the data sources, the design matrix, the registry of methods and protocols."""
