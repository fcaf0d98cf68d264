"""A connection to a Dask scheduler that runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client

from autogemm.support.errors import ClusterError
from autogemm.support.messages import message

# How long a scheduler is waited for.
CONNECT_S = 20.0
CLOSE_S = 10.0


@contextmanager
def opened_client(
    address: str | None, scheduler_file: str | None, timeout_s: float | None = None
) -> Iterator[Any]:
    """Yield a client of the scheduler at an address or in the file that it wrote.

    Raises ClusterError if it does not answer in time, by default CONNECT_S.
    """
    timeout_s = CONNECT_S if timeout_s is None else timeout_s
    silence_dask()
    try:
        client = Client(  # type: ignore[no-untyped-call]
            address, scheduler_file=scheduler_file, timeout=timeout_s, set_as_default=False
        )
    except (OSError, TimeoutError, ValueError) as error:
        where = address or scheduler_file
        raise ClusterError(f"no scheduler answers at {where}: {message(str(error))}") from error
    try:
        yield client
    finally:
        client.close(CLOSE_S)  # type: ignore[no-untyped-call]


def silence_dask() -> None:
    """Have Dask log nothing: what a person must know is said by this program."""
    for name in ("distributed", "distributed.client", "distributed.nanny", "tornado"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
