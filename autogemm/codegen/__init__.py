"""The one Jinja environment: render and export. Values in, text out."""

from autogemm.codegen.export.library import Library, Variant, export_library
from autogemm.codegen.export.standalone import (
    BEGINNINGS,
    export_cuda,
    export_json,
    export_ptx,
    extract_kernel,
)
from autogemm.codegen.rendering import render

__all__ = [
    "BEGINNINGS",
    "Library",
    "Variant",
    "export_cuda",
    "export_json",
    "export_library",
    "export_ptx",
    "extract_kernel",
    "render",
]
