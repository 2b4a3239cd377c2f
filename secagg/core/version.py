"""The version of secagg, which run folders and session names hold."""

__version__ = "0.1.0"
