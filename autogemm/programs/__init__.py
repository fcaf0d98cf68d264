"""Programs of torch: which GEMMs they call, what tuned kernels are worth there, putting them in.

Torch is imported by `record`, `patch` and `inductor_options` alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autogemm.programs.inductor import inductor_options
    from autogemm.programs.patching import patch, unpatch
    from autogemm.programs.process import recorded_program
    from autogemm.programs.recording import record
    from autogemm.programs.worth import Worth, worth_of

__all__ = [
    "Worth",
    "inductor_options",
    "patch",
    "record",
    "recorded_program",
    "unpatch",
    "worth_of",
]

_HOMES = {
    "Worth": "worth",
    "inductor_options": "inductor",
    "patch": "patching",
    "record": "recording",
    "recorded_program": "process",
    "unpatch": "patching",
    "worth_of": "worth",
}


def __getattr__(name: str) -> Any:
    """Modules are imported at the first use of what they have."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"autogemm.programs.{_HOMES[name]}"), name)
