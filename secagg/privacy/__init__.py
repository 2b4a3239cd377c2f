"""See the folder's files; import them as ``secagg.privacy.<file>``."""

if __name__ != "secagg.privacy":  # the link at the repository root would load a second copy
    raise ImportError("import secagg.privacy, not privacy")
