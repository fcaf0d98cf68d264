"""Open an engine, with the schema of this version, for a path or a URL."""
