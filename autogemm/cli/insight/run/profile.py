"""``autogemm profile``: hardware counters of one kernel, in words."""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from autogemm.bench.kernels import NotForThisError, named_kernels, render_named
from autogemm.cli.files import require_output, write_output
from autogemm.cli.lookup import device_facts
from autogemm.cli.output import Form, print_rows
from autogemm.cli.prose import say
from autogemm.cli.table import Row
from autogemm.insight.profiling import ProfileRequest, findings, profile_kernel, profile_of_page
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.benchmark import KernelKind
from autogemm.model.results.outcome import Environment
from autogemm.model.results.stored import Profile
from autogemm.store import Store, open_store
from autogemm.support.errors import DeviceError, UsageError
from autogemm.support.files import read_bounded
from autogemm.targets import open_gpu, why_no_gpu

COLUMNS = ("topic", "figure", "says", "usual_cause", "usual_cure", "turn")
MAX_PAGE_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class ProfileCommand:
    """One call of the command. Raises UsageError for options that do not fit together."""

    kernel: str
    size: str
    layout: Layout
    dtype: str
    page_file: Path | None
    gpu: str | None
    save: str | None
    force: bool
    no_store: bool
    db: str | None
    form: Form

    def __post_init__(self) -> None:
        if self.gpu and self.page_file is None:
            raise UsageError("--gpu needs --from: without it the attached GPU is profiled")
        if self.save and self.page_file is not None:
            raise UsageError("--save writes a new profile, --from reads an old one: leave one out")


def run(command: ProfileCommand) -> None:
    """Profile a kernel or read a page, store the counters, and print the findings."""
    if command.save:
        require_output(command.save, force=command.force)
    kernel = command.kernel
    problem = Problem.of_size(command.size, command.layout, DType.parse(command.dtype))
    with open_store(command.db) as store:
        if command.page_file is None:
            found, page, request = _made(kernel, problem, store)
        else:
            found, page, request = _read(kernel, problem, store, command.page_file, command.gpu)
        if not command.no_store:
            store.record_profile(found, request.source)
    if command.save:
        write_output(command.save, page.encode(), force=command.force)
    rows: list[Row] = [finding.row for finding in findings(found)]
    if command.form is not Form.TABLE:
        print_rows(rows, COLUMNS, command.form)
        return
    say(f"{kernel}, {problem.label}, {found.device.name}, {found.profiler}")
    for row in rows:
        _print(row)


def _print(row: Row) -> None:
    """Print topic and figure on a line, and what they mean below it."""
    say(f"\n{row['topic']}: {row['figure']}")
    if row["says"]:
        say(f"  {row['says']}")
    for name in COLUMNS[3:]:
        if row[name]:
            say(f"  {name.replace('_', ' ')}: {row[name]}")


def _made(kernel: str, problem: Problem, store: Store) -> tuple[Profile, str, ProfileRequest]:
    """Profile now. Raises DeviceError without a GPU or Nsight Compute."""
    if why := why_no_gpu():
        raise DeviceError(f"a profile needs a GPU: {why}; --from FILE reads an existing page")
    with closing(open_gpu()) as target:
        device, environment = target.device, target.environment
    with closing(target.compiler()) as compiler:
        request = replace(
            _request(kernel, problem, store, device),
            environment=replace(environment, compiler=compiler.version),
        )
        found, page = profile_kernel(request, compiler)
    return found, page, request


def _read(
    kernel: str, problem: Problem, store: Store, page_file: Path, gpu: str | None
) -> tuple[Profile, str, ProfileRequest]:
    """Read a page in a file."""
    try:
        page = read_bounded(page_file, MAX_PAGE_BYTES).decode(errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {page_file}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{page_file} is not a CSV page of Nsight Compute: {error}") from error
    request = _request(kernel, problem, store, device_facts(gpu or "auto"))
    found = profile_of_page(request, page, "Nsight Compute, read from a file")
    return found, page, request


def _request(kernel: str, problem: Problem, store: Store, device: Device) -> ProfileRequest:
    found = named_kernels((kernel,))
    if len(found) != 1 or found[0].kind is KernelKind.LIBRARY:
        raise UsageError(f"{kernel} is not a kernel of autogemm: name a rung, winner or kernel:ID")
    try:
        ready = render_named(found[0], problem, device, store)
    except NotForThisError as error:
        raise UsageError(f"{kernel} at {problem.label}: {error}") from error
    return ProfileRequest(
        name=found[0].rung.name if found[0].rung is not None else "",
        source=ready.source,
        plan=ready.plan,
        problem=problem,
        device=device,
        environment=Environment(),
    )
