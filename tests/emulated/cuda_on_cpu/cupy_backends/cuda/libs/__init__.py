"""See cupy/__init__.py beside this."""
