"""Text in, cubin and resource use out, with no GPU."""
