"""Files that others see whole or not at all, and files from elsewhere, read within a limit."""

import codecs
import gzip
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

CHUNK_BYTES = 2**20


def write_atomically(path: Path, content: bytes) -> None:
    """Write into a temporary file beside ``path``, then rename. Raises OSError; leaves nothing."""
    with _renamed_to(path) as temporary:
        temporary.write_bytes(content)


def write_chunks_atomically(path: Path, chunks: Iterable[bytes]) -> None:
    """Write chunk by chunk, like `write_atomically`; gzip'd if the name ends in .gz.

    An error that is raised while the chunks are made passes through, and nothing is written.
    """
    with _renamed_to(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".gz":
            # No date in the header: the same content gives the same bytes.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                packed.writelines(chunks)
        else:
            file.writelines(chunks)


@contextmanager
def _renamed_to(path: Path) -> Iterator[Path]:
    # A name of its own: threads, processes and machines may write one file at the same time.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        # Within one folder a rename is atomic: a reader never sees half a file.
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


class Digest(Protocol):
    """A receiver of all that is read (a ``hashlib.sha256()``)."""

    def update(self, chunk: bytes, /) -> None:
        """Take another chunk."""


def unpacked(path: Path, max_bytes: int, digest: Digest | None = None) -> Iterator[bytes]:
    """The content of a file, gzip'd or not, chunk by chunk; ``digest`` gets each.

    Raises OSError for what cannot be read or is no regular file (a pipe could keep us waiting),
    ValueError when there are more than ``max_bytes`` in it, which tells a bomb in time.
    """
    if not path.is_file():
        raise OSError(f"{path} is not a file")
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    size = 0
    try:
        with gzip.open(path, "rb") if is_packed else path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                size += len(chunk)
                if size > max_bytes:
                    raise ValueError(f"it unpacks to more than {max_bytes // 2**20} MB: refused")
                if digest is not None:
                    digest.update(chunk)
                yield chunk
    except (EOFError, zlib.error) as error:
        raise OSError(f"{path}: the packed data is broken: {error}") from error


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """All that a file or a pipe gives. Raises OSError, ValueError for more than ``max_bytes``.

    Its size is not asked for: a device has none and never ends.
    """
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"it is larger than {max_bytes} bytes")
    return data


def beginning(path: Path, num_bytes: int = 2**16) -> bytes:
    """The first bytes of a file's content, gzip'd or not; none if it cannot be read."""
    head = b""
    try:
        for chunk in unpacked(path, max_bytes=2**62):
            head += chunk
            if len(head) >= num_bytes:
                break
    except OSError:
        return b""
    return head[:num_bytes]


def decoded(chunks: Iterable[bytes]) -> Iterator[str]:
    """The chunks as text. Raises ValueError for bytes that are not UTF-8."""
    return codecs.iterdecode(chunks, "utf-8")
