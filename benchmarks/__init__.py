"""Measurements: what secagg costs, and how good its results are.

Each script is run from the root of the repository: python -m benchmarks.FOLDER.SCRIPT. `report`
runs those of speed and writes the tables in docs/performance. The scripts in `audits` and
`deployment` are run as files.
"""
