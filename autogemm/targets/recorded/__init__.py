"""Times read from a recording, for machines with no GPU."""
