"""Results of a kernel: outcomes, finals, certificates, benchmarks, and the names of numbers."""
