"""Kernels as files for others: a standalone CUDA file, or a C++ library of many kernels."""

from autogemm.codegen.export.kinds import STACKED, Kind
from autogemm.codegen.export.library import (
    LIBRARY_DTYPES,
    Library,
    Part,
    Variant,
    export_library,
    has_functions,
    library_layouts,
)
from autogemm.codegen.export.names import Names
from autogemm.codegen.export.standalone import (
    BEGINNINGS,
    export_cuda,
    export_header,
    export_json,
    export_ptx,
    extract_kernel,
    require_emitted,
)

__all__ = [
    "BEGINNINGS",
    "LIBRARY_DTYPES",
    "STACKED",
    "Kind",
    "Library",
    "Names",
    "Part",
    "Variant",
    "export_cuda",
    "export_header",
    "export_json",
    "export_library",
    "export_ptx",
    "extract_kernel",
    "has_functions",
    "library_layouts",
    "require_emitted",
]
