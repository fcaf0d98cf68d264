"""Names that an exported kernel has in the program of its user."""

import re
from dataclasses import dataclass

from autogemm.model.dtypes import DType
from autogemm.support.errors import UsageError

DEFAULT_PREFIX = "autogemm"


@dataclass(frozen=True, slots=True)
class Names:
    """Functions, namespaces and kernels begin with the prefix, so that two exports can meet.

    Files of the default prefix keep the kernel's own name outside of any namespace, and have a
    ``main`` unless AUTOGEMM_LIBRARY is defined; those of another have one if PREFIX_MAIN is.
    Raises UsageError for a prefix that is not a C++ identifier.
    """

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9]){0,39}", self.prefix):
            raise UsageError(
                "a prefix is a name for C++ of 40 letters at most, single underscores within, "
                f"got {self.prefix!r}"
            )

    @property
    def is_own(self) -> bool:
        """Whether the user chose the prefix."""
        return self.prefix != DEFAULT_PREFIX

    def function(self, dtype: DType) -> str:
        """The function that queues a GEMM of those types: ``autogemm_sgemm``."""
        return f"{self.prefix}_{dtype.export_function.removeprefix(f'{DEFAULT_PREFIX}_')}"

    @property
    def namespace(self) -> str:
        """The namespace of the launcher."""
        return f"{self.prefix}_host"

    @property
    def kernels(self) -> str:
        """The namespace of the kernels, empty where they are in none."""
        return f"{self.prefix}_kernels" if self.is_own else ""

    def kernel(self, name: str) -> str:
        """The qualified name of a kernel, for use outside of its namespace."""
        return f"{self.kernels}::{self.prefix}_{name}" if self.is_own else name

    @property
    def program_guard(self) -> str:
        """The line that begins the code that only a standalone program needs."""
        return f"#ifdef {self.prefix.upper()}_MAIN" if self.is_own else "#ifndef AUTOGEMM_LIBRARY"

    @property
    def guard_name(self) -> str:
        """The macro of `program_guard`."""
        return self.program_guard.split()[1]
