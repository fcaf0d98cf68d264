"""The finals of a run: which candidates take part, and which one wins and passes all checks."""
