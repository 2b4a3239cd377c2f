"""Priors over sites' coefficients in HM2, and their site posteriors."""
