"""A PostgreSQL server of the test run's own: a new cluster on a Unix socket, gone afterwards."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from waiting import PATIENCE_S, wait_until

USER = "autogemm"
# UTF-8 whatever the locale is, also one that is not installed here.
NEW_CLUSTER = ("-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
# Where distributions put what is not in PATH: Debian, Fedora, Homebrew.
FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server. ``psycopg`` is how its databases are reached."""

    folder: Path
    start: Callable[[], "subprocess.Popen[bytes]"]
    _running: "list[subprocess.Popen[bytes]]"
    _numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{USER}@/{database}?host={self.folder}"

    def stop_immediately(self) -> None:
        """As ``pg_ctl stop -m immediate``: neither clients nor the disk are waited for."""
        server = self._running.pop()
        server.send_signal(signal.SIGQUIT)
        server.wait(PATIENCE_S)

    def start_again(self) -> None:
        """On the same data, which it repairs from its log."""
        server = self.start()
        self._running.append(server)
        _wait_until_ready(server, self.folder)

    def new_database(self) -> str:
        """The URL of an empty database."""
        import psycopg

        name = f"test_{next(self._numbers)}"
        with psycopg.connect(host=str(self.folder), user=USER, dbname="postgres") as connection:
            connection.autocommit = True
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)


def find_program(name: str) -> str | None:
    """A program of the server, in PATH or where distributions put it."""
    if found := shutil.which(name):
        return found
    root = Path("/")
    installed = [path for glob in FOLDERS for path in root.glob(f"{glob[1:]}/{name}")]
    return str(max(installed)) if installed else None


def why_no_server() -> str:
    """Empty if one can be started."""
    for name in ("initdb", "postgres"):
        if find_program(name) is None:
            return f"PostgreSQL's {name} is not installed"
    return ""


@contextmanager
def running_server(*settings: str) -> Iterator[PostgresServer]:
    """A server with a cluster of its own. ``settings`` are ``name=value``.

    Root becomes someone else for it: the server refuses to run as root.
    """
    initdb, postgres = find_program("initdb"), find_program("postgres")
    assert initdb is not None and postgres is not None, why_no_server()
    # Not pytest's folder, nor one below TMPDIR: others may not be able to enter those, and a
    # socket's path must be short.
    folder = Path(tempfile.mkdtemp(prefix="autogemm-pg-", dir="/tmp"))
    user = None
    if os.geteuid() == 0:
        user = "nobody"
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    folder.chmod(0o755)
    data = folder / "data"
    try:
        subprocess.run(
            [initdb, "-D", str(data), "-U", USER, *NEW_CLUSTER],
            user=user,
            cwd=folder,
            check=True,
            capture_output=True,
        )
        options = ["listen_addresses=", f"unix_socket_directories={folder}", *settings]

        def start() -> "subprocess.Popen[bytes]":
            with (folder / "log").open("ab") as log:
                return subprocess.Popen(
                    [postgres, "-D", str(data), *(part for o in options for part in ("-c", o))],
                    user=user,
                    cwd=folder,
                    stdout=log,
                    stderr=log,
                )

        running: list[subprocess.Popen[bytes]] = []
        server = PostgresServer(folder, start, running)
        try:
            server.start_again()
            yield server
        finally:
            if running:
                server.stop_immediately()
    finally:
        shutil.rmtree(folder)


def _wait_until_ready(server: subprocess.Popen[bytes], folder: Path) -> None:
    import psycopg

    def answers() -> bool:
        assert server.poll() is None, (folder / "log").read_text()
        try:
            psycopg.connect(host=str(folder), user=USER, dbname="postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    wait_until(answers, "the server takes connections")
