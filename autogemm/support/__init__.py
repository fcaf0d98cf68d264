"""Errors, files, child processes and data folders, for every other room. Knows no GEMM."""
