"""Measurements outside of tuning: kernels side by side, search strategies on recordings."""
