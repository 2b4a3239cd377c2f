"""Learners of directed graphs from pooled moments or from rows, and what they return."""
