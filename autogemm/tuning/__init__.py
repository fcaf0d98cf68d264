"""The tuner: space + search + workers + store, and the finals."""
