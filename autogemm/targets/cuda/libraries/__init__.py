"""GEMMs of others on the worker's GPU: cuBLAS, cuBLASLt, CUTLASS, PyTorch, Triton."""
