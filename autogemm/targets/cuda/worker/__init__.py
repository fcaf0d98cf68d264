"""The process that owns a GPU; the only place, with `libraries`, that reaches CuPy."""
