"""How exact results are: roundings in FP32, and sums that tensor cores make in fewer bits."""
