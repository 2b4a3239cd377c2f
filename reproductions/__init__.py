"""Published experiments, repeated from the descriptions in their papers.

    python -m reproductions PAPER --figure N | --table N [--quick] [--out FOLDER]

This package is not installed with secagg. It imports only what secagg makes public, which
`docs/reference/api.md` lists and import-linter checks.

`secagg.experiments.runner` computes. Its `cells` defines the unit of work and names each result by
a hash of its settings and code; `experiment` computes the missing cells. `harness` serves every
paper: `figures` describes panels whose points are means over cells, with standard errors;
`paired_comparison` tests the paper's claims; `findings`, `pages` and `chart` write the output. Each
paper adds a package: its figures or tables, and a `tasks` folder with one module for each kind of
cell. `data` reads and simulates records.
"""
