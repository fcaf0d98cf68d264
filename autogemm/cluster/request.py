"""The requested workers: processes for GPUs of this machine, or those of a scheduler."""

from dataclasses import dataclass
from pathlib import Path

from autogemm.support.errors import UsageError
from autogemm.targets import names_several


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """``gpu`` is ``all`` or ``0,2`` for a worker process on each of these GPUs; otherwise the
    workers of the running Dask scheduler at ``scheduler`` (``tcp://host:8786``) or in
    ``scheduler_file`` are used, each with the first GPU that it sees. ``compilers`` is another
    scheduler, an address or a file, whose workers compile for them. ``patience_s`` is how long a
    scheduler may be without any worker.

    Raises UsageError for options that exclude each other.
    """

    gpu: str = "all"
    scheduler: str | None = None
    scheduler_file: str | None = None
    compilers: str | None = None
    patience_s: float = 60.0

    def __post_init__(self) -> None:
        if self.scheduler is not None and self.scheduler_file is not None:
            raise UsageError("--scheduler and --scheduler-file exclude each other")
        # Dask would wait for it for ever.
        if self.scheduler_file is not None and not Path(self.scheduler_file).is_file():
            raise UsageError(f"--scheduler-file: there is no file {self.scheduler_file}")
        if self.compilers is not None and self.compilers in (self.scheduler, self.scheduler_file):
            raise UsageError(
                "--compilers needs a scheduler of its own: the workers of this one tune problems"
            )
        if self.is_running and self.gpu != "auto":
            raise UsageError(
                f"--gpu {self.gpu} does not go with a running scheduler: each of its workers uses "
                "the first GPU that it sees (CUDA_VISIBLE_DEVICES)"
            )

    @property
    def is_running(self) -> bool:
        """Whether the workers exist already."""
        return self.scheduler is not None or self.scheduler_file is not None

    @property
    def is_wanted(self) -> bool:
        """Whether several workers are requested at all."""
        return self.is_running or names_several(self.gpu)
