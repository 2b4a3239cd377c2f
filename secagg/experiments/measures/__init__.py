"""What is measured of a result, by its kind: coefficients, predictions, graphs, networks."""
