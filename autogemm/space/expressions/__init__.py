"""The small language of search spaces.

An expression is parsed once, evaluated over integers or NumPy columns, printed as C++ or Python.
"""
