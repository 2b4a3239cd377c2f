"""Parties on computers of their own: adapters of federated engines, which carry the messages."""
