"""Whether the result of a planned job will be usable under noise, before any record is read."""
