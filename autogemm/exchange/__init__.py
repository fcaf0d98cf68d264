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
from autogemm.formats import T1Space, is_t1, read_t1, t1_text, yaml_text

__all__ = [
    "IMPORTED",
    "Format",
    "Imported",
    "T1Space",
    "Written",
    "import_results",
    "is_t1",
    "read_t1",
    "recognised",
    "t1_text",
    "write_results",
    "yaml_text",
]
