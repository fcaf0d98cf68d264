"""Kernels as files for others: a standalone CUDA file, or a C++ library of many kernels."""
