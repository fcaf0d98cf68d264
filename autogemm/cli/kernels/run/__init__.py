"""What the commands of `autogemm.cli.kernels` do once their options are parsed."""
