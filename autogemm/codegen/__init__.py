"""The one Jinja environment: render and export. Values in, text out."""

from autogemm.codegen.export import (
    BEGINNINGS,
    export_cuda,
    export_json,
    export_ptx,
    extract_kernel,
)
from autogemm.codegen.rendering import render

__all__ = ["BEGINNINGS", "export_cuda", "export_json", "export_ptx", "extract_kernel", "render"]
