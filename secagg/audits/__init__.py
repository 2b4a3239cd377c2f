"""See the folder's files; import them as ``secagg.audits.<file>``."""

if __name__ != "secagg.audits":  # the link at the repository root would load a second copy
    raise ImportError("import secagg.audits, not audits")
