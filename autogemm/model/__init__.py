"""The values that pass between rooms: problem, config, kernel, outcome. All are frozen."""
