"""A job of three columns whose records an experiment simulates."""

GRAPH_JOB = """title = "A graph"
[sites]
max_rows = 5000
[columns]
x0 = { type = "continuous", low = -5, high = 5 }
x1 = { type = "continuous", low = -5, high = 5 }
x2 = { type = "continuous", low = -5, high = 5 }
[method]
name = "moments"
analyses = [{ kind = "notears" }]
[protocol]
name = "masked"
[release]
min_sites = 2
min_records = 5
"""
