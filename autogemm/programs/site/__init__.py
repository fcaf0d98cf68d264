"""A folder for ``PYTHONPATH``: ``sitecustomize`` alone, for `autogemm.programs.process`."""
