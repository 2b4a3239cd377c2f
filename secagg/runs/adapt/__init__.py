"""Fit a finished run to a site that took no part in it."""
