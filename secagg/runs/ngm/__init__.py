"""Uses a finished run of `fedngm`: queries, predictions, samples, in the columns' own units."""
