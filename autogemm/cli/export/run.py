"""``autogemm export``: the best kernel as one file."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from autogemm.cli.files import require_output, write_output
from autogemm.cli.progress import watched
from autogemm.cli.prose import say
from autogemm.cli.rows import open_database
from autogemm.codegen import render
from autogemm.codegen.export import (
    BEGINNINGS,
    LIBRARY_DTYPES,
    Names,
    export_cuda,
    export_header,
    export_json,
    export_library,
    export_ptx,
    library_layouts,
    require_emitted,
)
from autogemm.compile import Compiler, ptx
from autogemm.dispatch import assembled
from autogemm.emulator import Emulator, Mode
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN
from autogemm.model.hardware.device import Device, short_gpu_name
from autogemm.model.problem import Layout
from autogemm.model.results.outcome import Provenance
from autogemm.model.results.stored import OnRecord, StoredKernel, TimedText
from autogemm.model.splitting import splitting_of
from autogemm.space import Family, default_families, load_family
from autogemm.store import (
    BestQuery,
    DecidedRow,
    chosen_winners,
    origin_of,
    shipped_kernel,
    shipped_rows,
)
from autogemm.support.amounts import counted
from autogemm.support.errors import CompilerMissingError, ExportError, NotFoundError, UsageError
from autogemm.targets.recorded import timed_text
from autogemm.verify import cases_of_tuned, on_cpu

WHOSE_TIME = {
    TimedText.EARLIER: "its time belongs to an earlier version of this kernel, not to this source",
    TimedText.UNKNOWN: "the recording does not say whether its time belongs to this source",
}
LIBRARY_FORMATS = ("cuda", "torch")


@dataclass(frozen=True, slots=True)
class ExportCommand:
    """One call of the command. ``folder`` is that of a library, ``path`` that of one kernel."""

    path: str | None
    query: BestQuery
    epilogues: tuple[str, ...]
    family_key: str | None
    kernel_key: str | None
    file_format: str
    folder: str | None
    prefix: str | None
    force: bool
    no_verify: bool
    db: str | None


def run(command: ExportCommand) -> None:
    """Write a library or one kernel. Raises UsageError for options that do not fit together."""
    if command.epilogues:
        query = replace(command.query, epilogue=command.epilogues[0])
        command = replace(command, query=query)
    if command.folder is not None:
        _write_library(command, command.folder)
    elif command.path is None or command.file_format == "torch":
        raise UsageError("name the FILE to write, or --library DIR (required by --format torch)")
    else:
        _write_kernel(command, command.path)


def _write_kernel(command: ExportCommand, path: str) -> None:
    if command.kernel_key is not None and command.query != BestQuery():
        raise UsageError(
            "--kernel names one kernel: leave out --gpu, --size, --layout, --dtype, --epilogue, "
            "--batch, --groups and --run"
        )
    if len(command.epilogues) > 1:
        raise UsageError("a kernel has one epilogue: several --epilogue are for --library")
    _names(command)
    if command.prefix is not None and command.file_format != "cuda":
        raise UsageError(f"--prefix names functions of CUDA text: {command.file_format} has none")
    family = load_family(command.family_key) if command.family_key else None
    query = replace(command.query, family=family.name if family else None)
    kernel, on_record = _stored_or_shipped(command, query)
    family = family or family_of(kernel)
    # A cubin cannot be distinguished from any other program.
    ours = BEGINNINGS.get(command.file_format)
    require_output(path, force=command.force, ours=ours)
    header = _header(command, kernel, family, path)
    # A place that cannot be written is reported before the kernel is run.
    content = exported(kernel, family, command, Path(path).name, on_record or OnRecord())
    if kernel.provenance is Provenance.RECORDED:
        on_record = _checked(kernel, family, command, on_record)
        content = exported(kernel, family, command, Path(path).name, on_record)
    write_output(path, content, force=command.force, ours=ours)
    if header is not None:
        write_output(header[0], header[1], force=command.force, ours=ours)
    if path != "-":
        say(f"{path}: {summary(kernel)}")


def _header(
    command: ExportCommand, kernel: StoredKernel, family: Family, path: str
) -> tuple[str, bytes] | None:
    """Return path and content of the header of a CUDA file; None for any other file.

    Raises UsageError where another program's file is in the way.
    """
    if command.file_format != "cuda" or Path(path).suffix != ".cu":
        return None
    place = str(Path(path).with_suffix(".h"))
    require_output(place, force=command.force, ours=BEGINNINGS["cuda"])
    today = datetime.now(UTC).date()
    text = export_header(kernel, family, Path(path).name, today, _names(command))
    return place, text.encode()


def _names(command: ExportCommand) -> Names:
    return Names() if command.prefix is None else Names(command.prefix)


def _stored_or_shipped(
    command: ExportCommand, query: BestQuery
) -> tuple[StoredKernel, OnRecord | None]:
    """Return the database's kernel; where it has none for a size, the catalogue's, and what is
    known of its text.

    Raises NotFoundError without any, UsageError where the catalogue has several.
    """
    try:
        with open_database(command.db) as store:
            return store.stored_kernel(command.kernel_key or query), None
    except NotFoundError as error:
        if command.kernel_key is not None or query.size is None:
            raise
        families = [query.family] if query.family else [one.name for one in default_families()]
        # What is not asked for is not meant, if there is a choice.
        plain = replace(
            query,
            epilogue=query.epilogue or "none",
            batch=query.batch or "1",
            groups=query.groups or "none",
        )
        winners = chosen_winners(families, plain) or chosen_winners(families, query)
        if not winners:
            raise NotFoundError(
                f"{error}; the catalogue has no such kernel either (autogemm db best --catalogue "
                "lists it)"
            ) from error
    gpus = sorted({one.gpu for one in winners})
    if len(gpus) > 1:
        raise UsageError(_several_gpus(gpus))
    if len(winners) > 1:
        labels = ", ".join(one.problem.label for one in winners[:3])
        raise UsageError(
            f"the database has no such result, and the catalogue has {len(winners)}: {labels}"
            f"{' ...' if len(winners) > 3 else ''}; name --layout, --dtype, --epilogue, --batch or "
            "--groups"
        )
    found = winners[0]
    origin = origin_of(found)
    say(f"the database has no such result: the kernel is from {origin}", err=True)
    source = render(load_family(found.config.family), found.config, found.problem)
    return shipped_kernel(found, source), OnRecord(found.text, origin=origin)


def _checked(
    kernel: StoredKernel, family: Family, command: ExportCommand, known: OnRecord | None
) -> OnRecord:
    """Check a kernel whose time is recorded, and say what is known of its text."""
    say("RECORDED: this kernel's time was not measured on this machine", err=True)
    known = known or OnRecord(timed_text(kernel, family))
    if known.timed is not TimedText.THIS:
        say(WHOSE_TIME[known.timed], err=True)
    if command.no_verify:
        return known
    checked = verified_on_cpu(kernel, family)
    say(checked, err=True)
    return replace(known, checked=f"this text, {checked}")


def exported(
    kernel: StoredKernel,
    family: Family,
    command: ExportCommand,
    file_name: str,
    on_record: OnRecord,
) -> bytes:
    """Return the file's content."""
    today, file_format = datetime.now(UTC).date(), command.file_format
    if file_format in ("cubin", "ptx"):
        require_emitted(kernel, family)
    if file_format == "cubin":
        with closing(Compiler(threads=1)) as compiler:
            return compiler.compile(kernel.source, kernel.device.sm).cubin
    if file_format == "ptx":
        return export_ptx(kernel, ptx(kernel.source, kernel.device.sm), today, on_record).encode()
    if file_format == "json":
        return export_json(kernel, today, on_record).encode()
    return export_cuda(kernel, family, file_name, today, on_record, names=_names(command)).encode()


def family_of(kernel: StoredKernel) -> Family:
    """Return the kernel's family, which ships. Raises NotFoundError for one of the user's own."""
    try:
        return load_family(kernel.source.family)
    except NotFoundError as error:
        raise NotFoundError(
            f"{kernel.label} belongs to the family {kernel.source.family}, which does "
            "not ship: give its folder with --family PATH"
        ) from error


def verified_on_cpu(kernel: StoredKernel, family: Family) -> str:
    """Run the kernel on the emulator, on small problems that need this very source.

    Returns a line that says so, or that g++ is missing. Raises ExportError when the emulator
    reports an error.
    """
    source = kernel.source
    every = cases_of_tuned(family, source.config, kernel.device, kernel.problem).cases
    cases = [one for one in every if render(family, one.config, one.problem).code == source.code]
    if not cases:
        return "not verified on the CPU: no small problem needs exactly this kernel"
    try:
        check = on_cpu(family, Emulator(), Mode.CHECK)
    except CompilerMissingError as error:
        return f"not verified on the CPU: {error}"
    for case in cases:
        result = check(case)
        if not result.ok:
            raise ExportError(
                f"{kernel.label} is wrong on the CPU, at {case.problem.label}: {result.message}"
            )
    return f"verified on the CPU, every access checked: {len(cases)} small problems"


def summary(kernel: StoredKernel) -> str:
    """Return a line on what was exported."""
    parts = [f"{kernel.label} for {kernel.problem.label} on {kernel.device.name}"]
    if kernel.time_us is not None:
        parts.append(f"{kernel.problem.tflops(kernel.time_us):.1f} TFLOP/s")
    if kernel.ratio is not None:
        parts.append(f"{kernel.ratio:.3f} times the speed of {kernel.baseline or 'cuBLAS'}")
    if (splitting := splitting_of(kernel.source.config)) is not None:
        parts.append(splitting.words)
    return ", ".join(parts)


C_SUFFIXES = (".h", ".cu", ".cpp")


def _write_library(command: ExportCommand, folder: str) -> None:
    """Write the library of one GPU's results, and print its contents and the loss of its rule.

    Raises NotFoundError without results, UsageError where no files can or should be written.
    """
    query = command.query
    others = {
        "FILE": command.path,
        "--size": query.size,
        "--batch": query.batch,
        "--groups": query.groups,
        "--run": query.run_id,
        "--kernel": command.kernel_key,
        "--prefix": command.prefix,
    }
    given = [name for name, value in others.items() if value is not None]
    if given or command.file_format not in LIBRARY_FORMATS:
        left_out = " ".join(given or [f"--format {command.file_format}"])
        raise UsageError(f"--library covers all sizes: leave out {left_out}")
    asked = (replace(query, epilogue=text).asked_epilogue or PLAIN for text in command.epilogues)
    epilogues = [one for one in dict.fromkeys(asked) if not one.is_plain]
    if command.file_format == "torch" and epilogues:
        raise UsageError("--format torch supports only plain products: leave out --epilogue")
    families = [load_family(command.family_key)] if command.family_key else default_families()
    layouts = [Layout(query.layout)] if query.layout else None
    dtypes = [DType.parse(query.dtype)] if query.dtype else None
    if dtypes and dtypes[0].b is not dtypes[0].ab:
        raise UsageError(
            f"--library has functions for operands of one type alone, got {query.dtype}: export "
            "its kernels one by one, without --library"
        )
    if dtypes and not epilogues and dtypes[0] not in LIBRARY_DTYPES:
        raise UsageError(
            f"--library has functions for a C of {dtypes[0].c} with an epilogue alone, which "
            f"scales it: give --epilogue, or leave out --dtype {query.dtype}"
        )
    if dtypes and layouts and layouts[0] not in library_layouts(dtypes[0]):
        raise UsageError(
            f"--library has functions for {dtypes[0]} in layout "
            f"{', '.join(library_layouts(dtypes[0]))} alone: leave out --layout {query.layout}"
        )
    runs = _results(command, families)
    library = assembled(
        *(runs, families, _device(runs)),
        layouts=layouts,
        dtypes=dtypes,
        epilogues=epilogues,
        watch=lambda kernels, total: watched(kernels, total, "kernels"),
    )
    files = export_library(library, datetime.now(UTC).date(), torch=command.file_format == "torch")
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise UsageError(f"{folder} is a file: give a folder")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"cannot make the folder {folder}: {error.strerror}") from error
    ours = {
        name: BEGINNINGS["cuda"] if Path(name).suffix in C_SUFFIXES else "# Written by autogemm "
        for name in files
    }
    # All or none of them.
    for name in files:
        require_output(str(place / name), force=command.force, ours=ours[name])
    for name, text in files.items():
        write_output(str(place / name), text.encode(), force=command.force, ours=ours[name])
    for part in library.all_parts:
        say(
            f"{folder}: {part.label}: {counted(len(part.variants), 'kernel')} of "
            f"{counted(len(part.configs), 'config')}; rule: {part.rule}"
        )
        for finding in part.findings:
            say(finding)
    say(f"next: cmake -S {folder} -B build && cmake --build build -j && ctest --test-dir build")


def _results(command: ExportCommand, families: Sequence[Family]) -> list[DecidedRow]:
    """Return the results that match the query; where the database has none, the catalogue's.

    Raises NotFoundError without any, UsageError where the catalogue has them of several GPUs.
    """
    query = BestQuery(gpu=command.query.gpu, dtype=command.query.dtype)
    try:
        with open_database(command.db) as store:
            runs = store.decided(query)
    except NotFoundError:
        runs = []
    if runs:
        return runs
    shipped = shipped_rows([family.name for family in families], query=query)
    gpus = sorted({row.spec.device.name for row in shipped})
    if not shipped:
        raise NotFoundError(
            "no result matches, in the database or the catalogue: autogemm tune --preset mixed "
            "--cross produces the results that a library needs"
        )
    if len(gpus) > 1:
        raise UsageError(_several_gpus(gpus))
    say(f"the database has no results: the library is made from the catalogue, for {gpus[0]}")
    return shipped


def _several_gpus(gpus: Sequence[str]) -> str:
    return (
        "the database has no such results, and the catalogue has several GPUs: name one, as in "
        f"{' or '.join(f'--gpu {short_gpu_name(gpu)!r}' for gpu in gpus)}"
    )


def _device(runs: Sequence[DecidedRow]) -> Device:
    """Return the GPU of the newest result, measured before recorded."""
    newest = max(
        runs, key=lambda run: (run.spec.provenance is Provenance.MEASURED, run.measured_at)
    )
    return newest.spec.device
