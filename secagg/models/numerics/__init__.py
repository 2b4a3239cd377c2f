"""Numerical routines that know no statistics."""
