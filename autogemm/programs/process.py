"""Another program under `autogemm.programs.recording`: ``autogemm record -- python serve.py``.

Its interpreters import ``sitecustomize`` from here, which begins to record once torch is imported.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autogemm.model.called import MAX_BYTES, Recorded, merged, parsed_called
from autogemm.support.errors import AutogemmError, UsageError
from autogemm.support.files import read_bounded

# The folder into which each process writes what it saw.
VARIABLE = "AUTOGEMM_RECORD"
_SITE = Path(__file__).parent / "site"
_PACKAGE = Path(__file__).parents[2]


def recorded_program(command: Sequence[str]) -> tuple[Recorded, int]:
    """Run a command; return what its Python processes called, and its exit status.

    Raises UsageError for a program that is not there, AutogemmError where none used torch.
    """
    if shutil.which(command[0]) is None:
        raise UsageError(
            f"there is no program {command[0]!r}: write autogemm record -- python X.py"
        )
    with tempfile.TemporaryDirectory(prefix="autogemm-record-") as folder:
        paths = (str(_SITE), os.environ.get("PYTHONPATH", ""), str(_PACKAGE))
        environment = {
            **os.environ,
            VARIABLE: folder,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        }
        status = subprocess.run([*command], env=environment, check=False).returncode
        files = sorted(Path(folder).glob("*.jsonl"))
        found = [parsed_called(read_bounded(one, MAX_BYTES).decode(), one.name) for one in files]
    if not any(one.gemms for one in found):
        raise AutogemmError(
            f"{command[0]} ended with {status} and called no PyTorch product that could be recorded"
        )
    return merged(found), status
