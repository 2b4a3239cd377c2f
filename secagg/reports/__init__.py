"""The report of a run, as text, tables and pictures. Renders; gathers nothing."""
