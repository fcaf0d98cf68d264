"""The work of the commands of `autogemm.cli.insight`, once their options are parsed."""
