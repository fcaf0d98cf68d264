"""Several tuners write to one new database at once: nothing is lost, nothing is there twice."""

import os
import subprocess
import sys
from pathlib import Path

from postgres_server import PostgresServer

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "many_writers.py"


def write_at_once(db: str) -> None:
    command = [sys.executable, str(SCRIPT), "--db", db, "--processes", "4", "--trials", "25"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert result.returncode == 0, result.stdout + result.stderr
    heading, row = result.stdout.splitlines()
    assert row.split()[1:5] == ["4", "25", "100", "100"]
    assert heading.split()[0] == "database"


def test_in_sqlite(tmp_path: Path) -> None:
    write_at_once(str(tmp_path / "a.db"))


def test_in_postgresql(postgres: PostgresServer) -> None:
    write_at_once(postgres.new_database())
