"""Results in files: the project's own formats and those of others, both ways (docs/exchange.md)."""

from autogemm.exchange.formats import Format, import_results, recognised, write_results

__all__ = ["Format", "import_results", "recognised", "write_results"]
