"""Facts of a GPU and what follows from them: peaks, ridge points, occupancy."""
