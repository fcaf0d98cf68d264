"""Lists that ship: known GPUs, rungs of the ladder, presets of sizes."""
