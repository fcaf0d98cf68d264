"""What the commands of `autogemm.cli.insight` do once their options are parsed."""
