"""What a site fits to its own records after a run: its own columns, or its own networks."""
