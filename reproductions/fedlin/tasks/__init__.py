"""Experiments on FedLin's federated linear models: their records, and one module a kind of cell."""
