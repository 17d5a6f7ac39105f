raise RuntimeError("at import")
