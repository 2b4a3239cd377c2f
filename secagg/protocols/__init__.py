"""See the folder's files; import them as ``secagg.protocols.<file>``."""

if __name__ != "secagg.protocols":  # the link at the repository root would load a second copy
    raise ImportError("import secagg.protocols, not protocols")
