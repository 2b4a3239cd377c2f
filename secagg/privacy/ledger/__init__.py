"""Ledgers: files in which a party writes down each release before it leaves."""
