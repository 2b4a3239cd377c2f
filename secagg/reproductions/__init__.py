"""Published experiments run again, from their papers' descriptions: `secagg reproduce PAPER`.

The machinery knows no paper: `cells` says what a unit of work is and names its result by what was
asked and by the code that answers; `pool` computes what is missing, in processes; `figures` is a
set of panels whose points are read from cells, with means and standard errors; `comparing` decides
what a paper says by them; `findings`, `pages` and `chart` write all down. A paper is a few files
more: `notears_admm` lists its figures, and the modules named there compute one kind of cell each.
"""
