"""The parts of a tuning task: request, spaces, accuracy, building a candidate, events."""
