"""Logistic and linear regression in rounds of secure sums."""
