"""From a path or a URL to an engine with the schema of this version."""
