"""Cells, process pool, tables, charts and pages, shared by all papers."""
