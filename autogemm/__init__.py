"""autogemm: finds the fastest GEMM kernel for your GPU and sizes, proves it right, hands it over.

As a library: `gemm` multiplies arrays of CuPy, torch and others by tuned kernels, `tune` searches
for one, `best` looks one up. The command line (``autogemm tune``, ``export``, ``db``) is a thin
layer over the same packages. docs/architecture.md has the layers; imports only point down.
"""

from autogemm.support.version import __version__

# As in `typing`, which takes as long to import as all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from autogemm.runtime import best, forget, gemm, tune

__all__ = ["__version__", "best", "forget", "gemm", "tune"]


def __getattr__(name: str) -> object:
    """The functions are imported at their first use: the package itself stays light."""
    if name in ("best", "forget", "gemm", "tune"):
        from autogemm import runtime

        found: object = getattr(runtime, name)
        # The next look finds it without coming here.
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
