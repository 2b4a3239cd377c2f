"""What a job may set of a graph revealer, and which edges its paths are."""
