"""All that a database keeps of runs as JSON Lines, one record a line."""
