"""A compiler that is helped by machines without a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

from autogemm.compile import Compiler
from autogemm.support.errors import ClusterError
from autogemm.support.installing import how_to_install


@contextmanager
def helped(compiler: Compiler | None, where: str | None) -> Iterator[None]:
    """Have the workers of the Dask scheduler at ``where`` compile, too, as long as the block lasts.

    ``where`` is an address or the scheduler's file; None, or no compiler, changes nothing. Raises
    ClusterError without Dask, or if the scheduler does not answer; later it may.
    """
    if compiler is None or where is None:
        yield
        return
    try:
        from autogemm.cluster.compiling import opened_compilers
    except ImportError as error:
        raise needs_dask("--compilers") from error
    with opened_compilers(where) as elsewhere:
        compiler.use(elsewhere)
        try:
            yield
        finally:
            compiler.use(None)


def needs_dask(what: str) -> ClusterError:
    """The error where the extra is not installed."""
    return ClusterError(f"{what} needs Dask: {how_to_install('cluster')}")
