"""Attacks by jobs and cohorts of the coordinator's choice."""
