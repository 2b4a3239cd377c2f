"""HM2's posteriors: of the parameters that sites share, and of each site's own coefficients."""
