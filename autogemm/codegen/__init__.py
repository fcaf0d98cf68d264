"""The one Jinja environment: render and export. Values in, text out."""

from autogemm.codegen.export import SIGNATURE, export_cuda, export_json, extract_kernel
from autogemm.codegen.rendering import render

__all__ = ["SIGNATURE", "export_cuda", "export_json", "extract_kernel", "render"]
