"""NVIDIA's own programs run on a candidate: compute-sanitizer and Nsight Compute."""
