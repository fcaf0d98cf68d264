"""autogemm finds the fastest GEMM kernel for your GPU and sizes, verifies it, and exports it.

`gemm` multiplies arrays of PyTorch, CuPy and other libraries with tuned kernels. `grouped_gemm`
multiplies the rows of each group by the group's matrix, and `grouped_gemm_tn` multiplies two
matrices group by group over their rows. `tune` searches for the fastest kernel of a problem, `best`
looks up a stored result, and `forget` drops the choices of `gemm`; `record`, `patch` and
`inductor_options` work on PyTorch programs and models. The command line (``autogemm tune``,
``export``, ``db``) is a thin layer over the same packages; docs/architecture.md describes them.
Every error derives from `AutogemmError`.
"""

from autogemm.support.version import __version__

# As in `typing`, whose import would take as long as everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from autogemm.programs import inductor_options, patch, record, unpatch
    from autogemm.runtime import best, forget, gemm, grouped_gemm, grouped_gemm_tn, tune
    from autogemm.store import ResultRow
    from autogemm.support.errors import (
        AutogemmError,
        CertificationError,
        DeviceError,
        EmptySpaceError,
        NotFoundError,
        StoreError,
        UsageError,
    )
    from autogemm.tuning import TuneResult

__all__ = [
    "AutogemmError",
    "CertificationError",
    "DeviceError",
    "EmptySpaceError",
    "NotFoundError",
    "ResultRow",
    "StoreError",
    "TuneResult",
    "UsageError",
    "__version__",
    "best",
    "forget",
    "gemm",
    "grouped_gemm",
    "grouped_gemm_tn",
    "inductor_options",
    "patch",
    "record",
    "tune",
    "unpatch",
]

_HOMES = {
    **dict.fromkeys(("inductor_options", "patch", "record", "unpatch"), "programs"),
    **dict.fromkeys((name for name in __all__ if name.endswith("Error")), "support.errors"),
    "ResultRow": "store",
    "TuneResult": "tuning",
}


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return sorted(__all__)


if not TYPE_CHECKING:  # so that type checkers report a name that is not there

    def __getattr__(name: str) -> object:
        """Import a public name on first use, so that importing the package is fast."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        home = _HOMES.get(name, "runtime")
        found = getattr(import_module(f"autogemm.{home}"), name)
        # The next lookup finds it without calling this function.
        globals()[name] = found
        return found
