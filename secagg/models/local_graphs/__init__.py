"""Graphs that sites learn alone, merged by votes or averages."""
