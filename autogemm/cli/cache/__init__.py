"""``autogemm cache``: what the package keeps on disk."""
