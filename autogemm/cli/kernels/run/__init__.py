"""The work of the commands of `autogemm.cli.kernels`, once their options are parsed."""
