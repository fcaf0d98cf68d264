"""The tuning database; the only place that imports sqlalchemy."""
