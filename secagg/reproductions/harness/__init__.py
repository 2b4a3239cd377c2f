"""Cells, process pool, tables, charts and pages that all papers share."""
