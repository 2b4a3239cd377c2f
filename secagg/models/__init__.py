"""See the folder's files; import them as ``secagg.models.<file>``."""

if __name__ != "secagg.models":  # the link at the repository root would load a second copy
    raise ImportError("import secagg.models, not models")
