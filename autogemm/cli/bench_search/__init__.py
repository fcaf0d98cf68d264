"""``autogemm bench-search``: search strategies compared on recorded spaces."""
