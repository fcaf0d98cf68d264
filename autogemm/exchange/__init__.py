"""Results and search spaces in the formats of others, both ways (docs/exchange.md)."""

from autogemm.exchange.formats import (
    IMPORTED,
    Format,
    Imported,
    Written,
    import_results,
    recognised,
    write_results,
)

__all__ = [
    "IMPORTED",
    "Format",
    "Imported",
    "Written",
    "import_results",
    "recognised",
    "write_results",
]
