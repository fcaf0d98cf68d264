"""``autogemm cache``: how much is kept on disk, deleting it, its limit."""

from autogemm.cli.output import Form, print_rows
from autogemm.cli.prose import say
from autogemm.cli.table import Row
from autogemm.support import disk_cache
from autogemm.support.amounts import counted, short_bytes
from autogemm.support.resources import cache_folder

COLUMNS = ("kind", "what", "num_files", "num_bytes")
SHOWN = ("kind", "what", "num_files", "size")


def show_size(form: Form) -> None:
    """Print what each kind takes, and the limit."""
    folder = cache_folder()
    found = disk_cache.usage(folder)
    rows: list[Row] = [
        {
            "kind": one.kind,
            "what": disk_cache.KINDS[one.kind],
            "num_files": one.num_files,
            "num_bytes": one.num_bytes,
            "size": short_bytes(one.num_bytes),
        }
        for one in found
    ]
    if form is not Form.TABLE:
        print_rows(rows, COLUMNS, form)
        return
    print_rows(rows, SHOWN)
    total = short_bytes(sum(one.num_bytes for one in found))
    say(f"\n{total} in {folder}; limit: {_limit()}")


def run_clear(kinds: tuple[str, ...]) -> None:
    """Delete files, and print how much space that freed."""
    gone = disk_cache.clear(cache_folder(), kinds)
    say(f"deleted {counted(gone.num_files, 'file')}, {short_bytes(gone.num_bytes)}")


def run_limit(size: str | None) -> None:
    """Print the limit, or set it and delete files beyond it."""
    folder = cache_folder()
    if size is None:
        say(_limit())
        return
    disk_cache.set_limit(folder, size)
    gone = disk_cache.trim(folder)
    freed = f"; deleted {counted(gone.num_files, 'file')}, {short_bytes(gone.num_bytes)}"
    say(f"limit: {_limit()}{freed if gone.num_files else ''}")


def _limit() -> str:
    limit = disk_cache.limit_bytes(cache_folder())
    return disk_cache.NO_LIMIT if limit is None else short_bytes(limit)
