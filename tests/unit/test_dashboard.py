"""optuna-dashboard opens what `db export --format optuna` writes, and shows what the tuner did."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from postgres_server import PostgresServer
from waiting import PATIENCE_S

from autogemm.cli import main

pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")


# At a port that is free: one that was free a moment ago may be somebody else's by now.
SERVER = """
import sys
from wsgiref.simple_server import make_server
from optuna_dashboard import wsgi
with make_server("127.0.0.1", 0, wsgi(sys.argv[1])) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""


@contextmanager
def dashboard(storage: str, log: Path) -> Iterator[str]:
    """The address of a dashboard's pages."""
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, storage], stdout=subprocess.PIPE, stderr=errors
        )
    assert server.stdout is not None
    with server.stdout:
        try:
            # It listens before it says where; if it ends instead, it has said why.
            port = server.stdout.readline().decode().strip()
            assert port, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def fetched(address: str) -> bytes:
    # Not through a proxy of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=PATIENCE_S) as answer:
        content: bytes = answer.read()
    return content


def shows_what_was_tuned(db: str, folder: Path) -> None:
    tune = ("tune", "--gpu", "recorded", "--size", "1024", "--trials", "5", "-q", "--json")
    result = CliRunner().invoke(main, [*tune, "--db", db])
    assert result.exit_code == 0, result.output
    best_us = json.loads(result.stdout)["best"]["time_us"]
    file = folder / "studies.log"
    export = ("db", "export", "--format", "optuna", "-o", str(file), "--db", db)
    for _ in range(2):
        # The second time it replaces what it wrote.
        done = CliRunner().invoke(main, export)
        assert done.exit_code == 0, done.output
    with dashboard(str(file), folder / "log") as address:
        assert b"<title>Optuna Dashboard</title>" in fetched(f"{address}/dashboard/")
        (study,) = json.loads(fetched(f"{address}/api/studies"))["study_summaries"]
        detail: dict[str, Any] = json.loads(
            fetched(f"{address}/api/studies/{study['study_id']}?after=0")
        )
    assert study["study_name"] == "run 1: sgemm_simt 1024 nn f32"
    assert [trial["state"] for trial in detail["trials"]] == ["Complete"] * 5
    assert detail["best_trials"][0]["values"][0] == pytest.approx(best_us)


def test_of_a_sqlite_file(tmp_path: Path) -> None:
    shows_what_was_tuned(str(tmp_path / "a.db"), tmp_path)


def test_of_a_postgresql_server(postgres: PostgresServer, tmp_path: Path) -> None:
    shows_what_was_tuned(postgres.new_database(), tmp_path)
