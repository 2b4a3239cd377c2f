"""Moves of a chain that all sites make together: common moves, and exchanges of powers."""
