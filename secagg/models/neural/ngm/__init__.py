"""Federated neural graphical models (Chajewska and Shrivastava 2023)."""
