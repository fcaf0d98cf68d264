"""The tables of the database, and the values that go into them and come out."""
