"""Values that pass between the coordinator and its workers."""

from dataclasses import dataclass

from autogemm.model.hardware.device import Device
from autogemm.model.results.outcome import Environment, Provenance
from autogemm.store import Copy
from autogemm.support.version import __version__
from autogemm.tuning import Sweep, Swept, TuneRequest

# Problems that a worker holds, the one on its GPU included.
AHEAD = 2


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a worker measures; ``version`` is that of its autogemm."""

    device: Device
    environment: Environment
    provenance: Provenance
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Work:
    """One problem for one worker.

    With ``database``, a server's URL, the worker reads and writes that one. Otherwise it has a file
    of its own in ``folder`` (None: in the temporary folder of its machine), which begins with
    ``history``: the results in the coordinator's database for the problem and for similar ones.
    ``compilers`` is a scheduler whose workers compile for ``sharers`` GPUs, None for none.
    """

    session: str
    number: int
    request: TuneRequest
    database: str | None
    folder: str | None
    history: tuple[Copy, ...] = ()
    compilers: str | None = None
    sharers: int = 1


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a problem on a worker, or the worker's own ``error``; neither if Ctrl-C came
    before it began.

    Without a server's database the run is in ``file``, in the folder of the work; ``content`` is
    the content of the file where the coordinator cannot read it.
    """

    number: int
    worker: str
    place: Place | None = None
    swept: Swept | None = None
    file: str = ""
    content: bytes = b""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """A sweep over several GPUs as far as it got. ``failure`` says in one line why it ended early;
    empty if it did not.
    """

    sweep: Sweep
    places: tuple[Place, ...]
    failure: str = ""

    @property
    def gpus(self) -> str:
        """The names of the GPUs, each once."""
        return ", ".join(dict.fromkeys(place.device.name for place in self.places))
