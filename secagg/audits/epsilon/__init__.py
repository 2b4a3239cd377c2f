"""Lower bounds on the epsilon of a job, from its runs; and the data sets that they compare."""
