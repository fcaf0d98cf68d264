"""``autogemm export``: one kernel as a file, or many as a library."""
