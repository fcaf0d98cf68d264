"""Compiled kernels on disk, one file each, identified by source, compiler and options."""

import hashlib
import json
import tempfile
import zlib
from dataclasses import asdict, replace
from pathlib import Path

from autogemm.model.kernel import CompiledKernel, Resources
from autogemm.support.errors import AutogemmError
from autogemm.support.files import write_atomically

# Part of every key, so that a change of the format makes old entries unknown, not wrong.
_FORMAT = 1


class CubinCache:
    """A folder of entries ``KEY.cubin``: the sha256 of the rest, a JSON line, the machine code
    (zlib; a third of its size, and a large search keeps thousands).

    Several processes may use one folder. Raises AutogemmError if nothing can be written to it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise AutogemmError(
                f"the cache folder {folder} cannot be written ({error.strerror}): "
                "set AUTOGEMM_CACHE to a folder that can"
            ) from error

    @staticmethod
    def key(source_sha256: str, options: tuple[str, ...], compiler: str) -> str:
        """Identity of a compilation: same key, same machine code. Options name the arch."""
        identity = json.dumps([_FORMAT, source_sha256, options, compiler])
        return hashlib.sha256(identity.encode()).hexdigest()

    def load(self, key: str) -> CompiledKernel | None:
        """The kernel stored under ``key``; None if there is none or its file is damaged.

        ``seconds`` is 0: nothing was compiled.
        """
        try:
            digest, _, payload = self._path(key).read_bytes().partition(b"\n")
        except OSError:
            return None
        if hashlib.sha256(payload).hexdigest().encode() != digest:
            return None
        header, _, packed = payload.partition(b"\n")
        values = json.loads(header)
        values["resources"] = tuple(Resources(**each) for each in values["resources"])
        values["options"] = tuple(values["options"])
        return CompiledKernel(**values, cubin=zlib.decompress(packed), seconds=0.0)

    def store(self, key: str, kernel: CompiledKernel) -> None:
        """Keep a kernel. Raises OSError, for example when the disk is full."""
        header = asdict(replace(kernel, cubin=b""))
        del header["cubin"], header["seconds"]
        payload = json.dumps(header).encode() + b"\n" + zlib.compress(kernel.cubin)
        digest = hashlib.sha256(payload).hexdigest().encode()
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(key), digest + b"\n" + payload)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.cubin"
