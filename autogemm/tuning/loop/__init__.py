"""The search loop: ask, build, measure, record, tell."""
