"""The one Jinja environment: render and export. Values in, text out."""
