"""autogemm finds the fastest GEMM kernel for your GPU and sizes, verifies it, and exports it.

`gemm` multiplies arrays of PyTorch, CuPy and other libraries with tuned kernels. `grouped_gemm`
multiplies the rows of each group by the group's matrix, and `grouped_gemm_tn` multiplies two
matrices group by group over their rows. `tune` searches for the fastest kernel of a problem, `best`
looks up a stored result, and `forget` drops the choices of `gemm`; `record`, `patch` and
`inductor_options` work on PyTorch programs and models. The command line (``autogemm tune``,
``export``, ``db``) is a thin layer over the same packages; docs/architecture.md describes them.
"""

from autogemm.support.version import __version__

# As in `typing`, whose import would take as long as everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from autogemm.programs import inductor_options, patch, record, unpatch
    from autogemm.runtime import best, forget, gemm, grouped_gemm, grouped_gemm_tn, tune

__all__ = [
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


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """Import a public function on first use, so that importing the package is fast."""
    if name in __all__:
        from autogemm import programs, runtime

        found: object = getattr(programs if name in programs.__all__ else runtime, name)
        # The next lookup finds it without calling this function.
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
