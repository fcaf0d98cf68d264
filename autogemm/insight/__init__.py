"""Explanations of results and kernels: analysis, static facts, profiles, plots, reports."""
