"""Logistic and linear regression, round by round."""
