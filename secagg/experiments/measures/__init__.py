"""What is measured of a result, by the kind of its table: coefficients, predictions, graphs."""
