"""The worker's hold on its GPU: memory, launches, timing, clocks and energy, cuBLAS."""
