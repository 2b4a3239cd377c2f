"""A job: file, data sources, design matrix, registry of methods and protocols."""
