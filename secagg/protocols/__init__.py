"""Secure-sum protocols; import them as ``secagg.protocols.<module>``."""

if __name__ != "secagg.protocols":  # the link at the repository root would load a second copy
    raise ImportError("import secagg.protocols, not protocols")
