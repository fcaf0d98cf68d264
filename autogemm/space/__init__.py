"""A family's YAML: parameters, constraints, and the legal configs as NumPy columns."""
