"""Files of others and recordings, read into values and written from them; no database."""
