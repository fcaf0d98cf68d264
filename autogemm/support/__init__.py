"""What every other room may use: errors, files, child processes, data folders. Knows no GEMM."""
