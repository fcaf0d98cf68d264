"""The one Jinja environment: config in, CUDA text out."""

from autogemm.codegen.rendering import render

__all__ = ["render"]
