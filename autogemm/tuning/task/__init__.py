"""What a tuning run is asked for: request, spaces, accuracy, building a candidate, events."""
