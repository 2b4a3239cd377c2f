"""The report of a run: text, tables and pictures, rendered from the facts of the run."""
