"""Every error that autogemm raises on purpose.

::

    AutogemmError                exit code 1: the request was fine, it could not be carried out
    ├── UsageError               exit code 2: the request is wrong (name, size, option)
    │   ├── NotFoundError        exit code 2: a GPU, family, run or recording that does not exist
    │   └── EpilogueError        exit code 2: an expression that is none; shows the place
    ├── FamilyError              a search space YAML or a template is broken
    ├── EmptySpaceError          no config of the family is legal for this problem and device
    ├── CompilerMissingError     NVRTC (or g++ for the emulator) is not installed
    ├── KernelCompileError       one kernel does not compile; names the file with its source
    │   ├── CompileTimeoutError  the compiler did not end in time and was killed
    │   └── CompilerDiedError    the compiler crashed, or took too much memory
    ├── DeviceError              no usable GPU or driver, or the GPU is out of memory
    ├── ClusterError             the workers of several GPUs cannot be started, or are gone
    ├── RecordingError           a recording file is broken
    ├── ProfileError             a profiler's output cannot be understood
    ├── StoreError               the database cannot be opened, read or written
    │   └── StoreLockedError     another process holds its lock for longer than was waited
    ├── ExchangeError            a file from elsewhere is broken, or a format cannot hold something
    ├── CertificationError       no finalist passes the checks that a winner must pass
    └── ExportError              a kernel cannot be exported

A message states the rule, the value that broke it and what to do, on one line. A candidate kernel
that fails is not an error: it is an `Outcome` with a status and a reason.
"""

from pathlib import Path


class AutogemmError(Exception):
    """Root of all errors raised on purpose. The command line shows one line and exits with 1."""

    exit_code = 1


class UsageError(AutogemmError):
    """The request is wrong: a name, a size, an option. Exit code 2."""

    exit_code = 2


class NotFoundError(UsageError):
    """A GPU, family, run, trial or recording that does not exist. Exit code 2."""


class EpilogueError(UsageError):
    """The expression of an epilogue is none. ``place`` is its text, a caret under the place."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class FamilyError(AutogemmError):
    """A family's search space YAML or template is broken."""


class EmptySpaceError(AutogemmError):
    """No config of the family is legal for this problem and device."""


class CompilerMissingError(AutogemmError):
    """NVRTC, or g++ for the emulator, is not installed or cannot be loaded."""


class KernelCompileError(AutogemmError):
    """One kernel does not compile. The source is kept for the log's line numbers."""

    def __init__(self, message: str, *, log: str = "", source_path: Path | None = None) -> None:
        super().__init__(message)
        self.log = log
        self.source_path = source_path


class CompileTimeoutError(KernelCompileError):
    """The compiler did not end in time and was killed."""


class CompilerDiedError(KernelCompileError):
    """The compiler crashed, or took too much memory. The same kernel may compile another time."""


class DeviceError(AutogemmError):
    """No usable GPU or driver, or the GPU is out of memory."""


class ClusterError(AutogemmError):
    """The workers of several GPUs, or their scheduler, cannot be reached or are gone."""


class RecordingError(AutogemmError):
    """A recording file is broken or does not hold what was asked for."""


class ProfileError(AutogemmError):
    """A profiler's output cannot be understood."""


class StoreError(AutogemmError):
    """The database cannot be opened, read or written."""


class StoreLockedError(StoreError):
    """Another process holds the database's lock; nothing was written, and trying again helps."""


class ExchangeError(AutogemmError):
    """A file from elsewhere is broken, or a format cannot hold what is asked of it."""


class CertificationError(AutogemmError):
    """No finalist passes the checks that a winner must pass."""


class ExportError(AutogemmError):
    """A kernel cannot be exported."""
