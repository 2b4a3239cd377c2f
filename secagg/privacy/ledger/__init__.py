"""Ledgers: each release is recorded on disk before it leaves."""
