"""Attacks on runs, lower bounds on epsilon, and `secagg verify`."""

if __name__ != "secagg.audits":  # the link at the repository root would load a second copy
    raise ImportError("import secagg.audits, not audits")
