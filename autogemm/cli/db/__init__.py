"""``autogemm db``: the tuning database on the command line."""
