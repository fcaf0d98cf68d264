"""``autogemm bench`` and ``bench-search``."""
