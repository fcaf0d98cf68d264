"""Imported by each interpreter below ``autogemm record``: waits for torch, then records.

The program's own ``sitecustomize``, if it has one, is imported as well.
"""

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_HERE = str(Path(__file__).parent)


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as others do, and begins to record behind its import."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _begin()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _begin() -> None:
    from autogemm.programs import record

    recording = record(Path(os.environ["AUTOGEMM_RECORD"]) / f"{os.getpid()}.jsonl")
    recording.__enter__()
    atexit.register(recording.__exit__, None, None, None)


sys.meta_path.insert(0, _AfterTorch())
# The next one on the path, which this one hides.
_others = [place for place in sys.path if place != _HERE]
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(importlib.util.module_from_spec(_next))
