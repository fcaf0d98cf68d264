"""The work of the commands of ``autogemm db``, once their options are parsed."""
