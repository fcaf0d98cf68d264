"""Questions to the database, as selects that read few rows by index."""
