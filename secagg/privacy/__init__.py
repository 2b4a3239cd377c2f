"""Clipping, accounting, noise, ledgers and policies: import ``secagg.privacy.<folder>.<file>``."""

if __name__ != "secagg.privacy":  # the link at the repository root would load a second copy
    raise ImportError("import secagg.privacy, not privacy")
