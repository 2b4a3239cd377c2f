"""What releases cost: events, privacy-loss distributions, budgets, calibration of noise."""
