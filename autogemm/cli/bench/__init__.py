"""``autogemm bench``: kernels timed side by side."""
