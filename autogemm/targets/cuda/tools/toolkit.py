"""NVIDIA's own programs: where they are, which version."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

VERSION_DEADLINE_S = 10.0
# Beside toolkits: where Nsight Compute's own packages put it, a folder for each version.
NSIGHT_FOLDER = Path("/opt/nvidia/nsight-compute")


def find_program(name: str) -> str | None:
    """A program on PATH or in a CUDA toolkit."""
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [str(Path(toolkit) / "bin") for toolkit in toolkits if toolkit]
    folders += [str(path) for path in sorted(NSIGHT_FOLDER.glob("*"), reverse=True)]
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


@cache
def program_version(path: str) -> str:
    """``compute-sanitizer 2025.3.1.0``; the name alone where it does not tell."""
    name = Path(path).name
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return name
    found = re.search(r"\bV(?:ersion )?(\d[\w.]*)", done.stdout)
    return f"{name} {found[1]}" if found else name
