"""Runs a command with a PostgreSQL server of its own: ``{db}`` in it becomes the URL of a database.

python benchmarks/with_postgres.py python benchmarks/many_writers.py --db {db}
"""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from postgres_server import running_server  # it lies with the tests, who need it too

if __name__ == "__main__":
    with running_server() as server:
        url = server.new_database()
        command = [part.replace("{db}", url) for part in sys.argv[1:]]
        sys.exit(subprocess.run(command, check=False).returncode)
