"""Config in, CUDA text out."""

from autogemm.codegen.rendering import render

__all__ = ["render"]
