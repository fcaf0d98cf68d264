"""Config in, CUDA text out."""

from autogemm.codegen.fused import worker_text
from autogemm.codegen.rendering import render

__all__ = ["render", "worker_text"]
