"""Emitted CUDA run and checked on the CPU."""
