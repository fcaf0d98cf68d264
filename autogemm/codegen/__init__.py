"""The one Jinja environment: render and export. Values in, text out."""

from autogemm.codegen.rendering import render

__all__ = ["render"]
