"""A card, reached through a worker process; the only place that imports cupy."""
