"""What the commands of ``autogemm db`` do once their options are parsed."""
