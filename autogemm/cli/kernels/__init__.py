"""Commands on kernels, search spaces and GPUs: ``space``, ``render``, ``verify``, ``gpus``."""
