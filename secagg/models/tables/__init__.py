"""Tables of counts, with the noise of a matrix mechanism (docs/math/tables.md)."""
