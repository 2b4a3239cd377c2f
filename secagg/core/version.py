"""The version of secagg. Run folders record it, and session names depend on it."""

__version__ = "0.1.0"
