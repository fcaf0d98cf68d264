"""Rows of one database into another; nothing is stored twice."""
