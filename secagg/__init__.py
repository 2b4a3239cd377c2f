"""secagg: privacy-hardened secure aggregation for federated statistics."""

__version__ = "0.1.0"
