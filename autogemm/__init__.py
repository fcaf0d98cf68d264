"""autogemm: finds the fastest GEMM kernel for your GPU and sizes, proves it right, hands it over.

The command line (``autogemm tune``, ``export``, ``db``) is a thin layer over this package.
Layers, from the bottom up: values (problem, device, config, kernel, outcome), space,
codegen / compile / targets / store / search, tuning / report, cli. Imports only point down.
"""

__version__ = "0.1.0"
