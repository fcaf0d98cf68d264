"""The process that owns a GPU: the only room that reaches CuPy.

The parent names its modules as text, and imports none of them. ``gpu`` holds the GPU, ``problem``
prepares one problem on it, ``libraries`` are the GEMMs of others; the modules beside them answer
the parent's requests.
"""
