"""The page of an experiment (`secagg experiment`)."""
