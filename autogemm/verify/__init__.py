"""Kernels checked on edge cases, on the CPU and on a GPU, and the certificate of a winner."""
