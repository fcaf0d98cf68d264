"""``autogemm record``."""
