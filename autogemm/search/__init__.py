"""Optuna samplers over enumerated legal configs; the only place that imports optuna."""
