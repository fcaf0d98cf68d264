"""Files that others see whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write into a temporary file beside ``path``, then rename. Raises OSError; leaves nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        # Within one folder a rename is atomic: a reader never sees half a file.
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
