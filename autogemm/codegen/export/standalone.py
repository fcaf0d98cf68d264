"""One kernel as one CUDA file: provenance, the measured bytes, a launcher, a main that tests it."""

import hashlib
import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import date
from typing import Any

from autogemm.codegen.export.element_types import (
    converts_operands,
    element_types,
    output_types,
)
from autogemm.codegen.export.host import Host, float_literal
from autogemm.codegen.export.names import Names
from autogemm.codegen.fused import fused_of
from autogemm.codegen.rendering import render
from autogemm.model.accuracy.rounding import RMS_SHARE
from autogemm.model.accuracy.short_sums import LEAST_SUMS, promise_of
from autogemm.model.config import Config
from autogemm.model.dtypes import DType, Element
from autogemm.model.fusion import Fusion, fusion_of
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.outcome import CacheState, Environment, Provenance
from autogemm.model.results.stored import OnRecord, StoredKernel, TimedText
from autogemm.model.signature import (
    COUNTS,
    OFFSETS,
    ArgumentType,
    CNames,
    ProblemType,
    extents,
    factors,
    gemm_signature,
)
from autogemm.model.splitting import splitting_of
from autogemm.space import Family, arguments_of, launch_plan
from autogemm.support.errors import ExportError
from autogemm.support.templating import WIDTH, environment
from autogemm.support.version import __version__

WRITTEN_BY = "// Written by autogemm "

DEFAULT_NAMES = Names()

# The beginnings of our files in each text format, which distinguish them from others.
BEGINNINGS = {"cuda": WRITTEN_BY, "ptx": WRITTEN_BY, "json": '{\n  "autogemm": '}


def export_cuda(  # noqa: PLR0913  # the last two have defaults
    kernel: StoredKernel,
    family: Family,
    file_name: str,
    written: date,
    on_record: OnRecord | None = None,
    *,
    names: Names = DEFAULT_NAMES,
) -> str:
    """The whole CUDA file; ``file_name`` appears in the commands that its header recommends.

    ``on_record`` says what is known of this text where the time is recorded. With ``names`` chosen
    by the user, several such files can be linked into one program.

    Raises ExportError when the family no longer emits this kernel: its launch geometry may then
    have changed too.
    """
    require_emitted(kernel, family)
    source, problem = kernel.source, kernel.problem
    host = Host(family, source.config, problem)
    context = _context(kernel, family, host, names)
    converts = converts_operands(kernel)
    of_products = problem.dtype.converted if converts else problem.multiplied
    usage = _usage(kernel, host.kernels, file_name, names)
    context |= {
        "header": "\n".join([*_provenance(kernel, written, on_record), "//", *usage]),
        "kernel": source.text,
        **kernel_marks(source),
        **element_types(problem, converts=converts),
        **output_types(problem),
        "promise": _promise(family, source.config, problem),
        "test_call": host.exported.in_call(_in_test(family, problem), "p."),
        "fusion": _fusion(problem),
        "problem": [
            *((name, str(value)) for name, value in extents(problem).items()),
            *((name, float_literal(value)) for name, value in factors(problem).items()),
        ],
        "rows_given": ", ".join(map(str, problem.groups.given(problem.grouped_rows))),
        # Those of the program, too: products of an 8-bit C have 16 bits.
        "headers": headers_of(family, problem, of_products.ab, of_products.c),
        "arch": kernel.device.arch,
        "target": _nvcc_target(kernel),
        "device_name": json.dumps(printable(kernel.device.name), ensure_ascii=False),
    }
    return environment().get_template("export/standalone.cu.jinja").render(context)


def export_header(
    kernel: StoredKernel, family: Family, file_name: str, written: date, names: Names
) -> str:
    """The header that declares what the CUDA file of that name defines. Raises ExportError."""
    host = Host(family, kernel.source.config, kernel.problem)
    context = _context(kernel, family, host, names) | {
        "first_line": f"{WRITTEN_BY}{__version__} on {written.isoformat()}.",
        "file_name": printable(file_name),
    }
    return environment().get_template("export/header.h.jinja").render(context)


def program_context(problem: Problem, function: str) -> dict[str, object]:
    """The context of the templates that verify a GEMM and time it beside cuBLAS, without a
    launcher.

    ``function`` queues it: the arguments of a plain GEMM with a workspace, then the stream.
    """
    exported = gemm_signature(workspace=True)
    return {
        **element_types(problem, converts=problem.converts),
        "function": function,
        "trans_a": problem.layout.trans_a,
        "trans_b": problem.layout.trans_b,
        "layout": str(problem.layout),
        "batched": not problem.batch.is_one,
        **dict.fromkeys(("grouped", "masked", "divides_k"), False),
        "fused": fused_of(problem),
        "fusion": _fusion(problem),
        "returns_ratio": True,
        "extras": [],
        # Its kernels are chosen by size.
        "promise": None,
        "test_call": exported.in_call(_MATRICES_IN_TEST, "p."),
        "call_without_addresses": "",
    }


def _context(kernel: StoredKernel, family: Family, host: Host, names: Names) -> dict[str, object]:
    """The context that the file and its header share."""
    problem = kernel.problem
    own = host.context(host_names(problem.dtype))
    launches = [one | {"kernel": names.kernel(one["kernel"])} for one in host.launches()]
    return {
        **own,
        "launches": launches,
        "function": names.function(problem.dtype),
        "namespace": names.namespace,
        "prefix": names.prefix,
        "prefix_is_own": names.is_own,
        "renames_shared": names.is_own and bool(shared_arrays(kernel.source)),
        "renamed": [*host.kernels, *shared_arrays(kernel.source)] if names.is_own else [],
        "kernels_namespace": names.kernels,
        "program_guard": names.program_guard,
        "guard_name": names.guard_name,
        "trans_a": problem.layout.trans_a,
        "trans_b": problem.layout.trans_b,
        "layout": str(problem.layout),
        "headers": headers_of(family, problem),
        "fused": fused_of(problem),
        "returns_ratio": False,
    }


def _fusion(problem: Problem) -> Fusion | None:
    """The form of cuBLASLt that computes it; batches and groups are compared as plain products."""
    if problem.epilogue.is_plain or not (problem.batch.is_one and problem.groups.is_none):
        return None
    return fusion_of(problem.epilogue, problem.dtype)


def require_emitted(kernel: StoredKernel, family: Family) -> None:
    """Raise ExportError unless the family emits the kernel's text: a database may hold any text."""
    source = kernel.source
    if render(family, source.config, kernel.problem).code != source.code:
        raise ExportError(
            f"{kernel.label} was emitted by another version of the family "
            f"{family.name}: tune again, or install the version that tuned it"
        )


def shared_arrays(source: KernelSource) -> list[str]:
    """The names of a kernel's dynamic shared memory.

    They are outside of any namespace: kernels in one file that give it other types clash.
    """
    return sorted(set(re.findall(r"\bextern __shared__ [^;]*?(\w+)\[\];", source.text)))


def kernel_marks(source: KernelSource) -> dict[str, str]:
    """The lines before and behind a kernel's bytes, by which `extract_kernel` finds them."""
    num_bytes = len(source.text.encode())
    begin = f"// autogemm:kernel:begin bytes={num_bytes} sha256={source.sha256}"
    return {"kernel_begin": begin, "kernel_end": "// autogemm:kernel:end"}


def extract_kernel(text: str) -> str:
    """Return the kernel as it was measured, from the text of an exported CUDA file.

    Raises ExportError when there is none, or when it does not match its sha256.
    """
    begin = re.search(r"^// autogemm:kernel:begin bytes=(\d+) sha256=([0-9a-f]{64})\n", text, re.M)
    if begin is None:
        raise ExportError("this is not a CUDA file that autogemm exported: no kernel is marked")
    kernel = text[begin.end() :].encode()[: int(begin[1])]
    if hashlib.sha256(kernel).hexdigest() != begin[2]:
        raise ExportError("the kernel in this file was edited: its sha256 does not match")
    return kernel.decode()


def export_ptx(
    kernel: StoredKernel, ptx: str, written: date, on_record: OnRecord | None = None
) -> str:
    """The kernel's PTX below a comment that says where it comes from."""
    return "\n".join([*_provenance(kernel, written, on_record), ptx])


def export_json(kernel: StoredKernel, written: date, on_record: OnRecord | None = None) -> str:
    """Config, problem, device, environment, measurement and source as one JSON object.

    ``measurement.timed_text`` is ``this`` where exactly this source was timed, else ``earlier`` or
    ``unknown``.
    """
    source, problem = kernel.source, kernel.problem
    splitting = splitting_of(source.config)
    content = {
        "autogemm": __version__,
        "written": written.isoformat(),
        "kernel_id": kernel.kernel_id or None,
        "run_id": kernel.run_id,
        "family": source.family,
        "config": source.config.as_dict(),
        "splitting": splitting.label if splitting is not None else None,
        "problem": _problem_dict(problem),
        "device": asdict(kernel.device),
        "environment": asdict(kernel.environment),
        "measurement": {
            "provenance": str(kernel.provenance),
            "timed_text": str(_timed(kernel, on_record)),
            "measured_at": kernel.measured_at.isoformat(),
            "time_us": kernel.time_us,
            "tflops": problem.tflops(kernel.time_us) if kernel.time_us else None,
            "ratio": kernel.ratio,
            "ratio_low": kernel.ratio_low,
            "ratio_high": kernel.ratio_high,
            "baseline": kernel.baseline,
            "error": kernel.error,
            "verification": asdict(kernel.verification) if kernel.verification else None,
        },
        "certificate": _certificate_dict(kernel.certificate),
        "kernel_sha256": source.sha256,
        "template_sha256": source.template_sha256,
        "source": source.text,
    }
    return json.dumps(content, indent=2) + "\n"


_TEXTS = ("layout", "dtype", "epilogue", "batch", "groups")


def _problem_dict(problem: Problem) -> dict[str, Any]:
    """The fields of the problem; a plain product has none for an epilogue, a batch or groups."""
    texts = {name: str(getattr(problem, name)) for name in _TEXTS}
    left_out = {
        **{"epilogue": problem.epilogue.is_plain, "batch": problem.batch.is_one},
        "groups": problem.groups.is_none,
    }
    fields = asdict(problem) | texts
    return {name: value for name, value in fields.items() if not left_out.get(name)}


def _certificate_dict(certificate: Certificate | None) -> dict[str, Any] | None:
    if certificate is None:
        return None
    return {
        "verdict": certificate.verdict,
        "made_at": certificate.made_at.isoformat(),
        "checks": [asdict(check) for check in certificate.checks],
    }


def _timed(kernel: StoredKernel, on_record: OnRecord | None) -> TimedText:
    """The text that was timed; where the time was measured, this one."""
    if kernel.provenance is Provenance.MEASURED:
        return TimedText.THIS
    return (on_record or OnRecord()).timed


# Prefix of a recorded time and error, where nothing else is known of the text in the file.
_NOT_OF_THIS = {
    TimedText.EARLIER: "of an earlier version of this kernel, not of this text: ",
    TimedText.UNKNOWN: "not known to be of this text: the recording does not say which it is of; ",
}


def _provenance(
    kernel: StoredKernel, written: date, on_record: OnRecord | None = None
) -> Iterator[str]:
    problem, device, source = kernel.problem, kernel.device, kernel.source
    caveat = _NOT_OF_THIS.get(_timed(kernel, on_record), "")
    run = f"{kernel.label}, run {kernel.run_id}, {kernel.measured_at:%Y-%m-%d}"
    yield f"{WRITTEN_BY}{__version__} on {written.isoformat()}."
    yield "//"
    if kernel.provenance is Provenance.RECORDED:
        yield "// RECORDED, NOT MEASURED ON THIS MACHINE: the time below was read from a recording."
        yield "//"
    for label, value in (
        ("problem", f"C = {_formula(problem)}, {problem.label}, row-major"),
        ("GPU", f"{device.name} ({device.sm})"),
        ("time", caveat + _speed(kernel)),
        ("error", (caveat if kernel.error is not None else "") + _error(kernel)),
        ("with", _versions(kernel.environment)),
        ("from", (on_record and on_record.origin) or run),
        ("family", f"{source.family}, template sha256 {source.template_sha256}"),
        ("config", source.config.label),
        ("kernel", f"sha256 {source.sha256}"),
    ):
        yield from comment(f"{label + ':':9}", value)
    if (splitting := splitting_of(source.config)) is not None:
        yield from comment("made by: ", splitting.words)
    if kernel.provenance is Provenance.RECORDED and kernel.certificate is None:
        checked = (on_record or OnRecord()).checked
        yield from comment(
            "checked: ", checked or "this text was not checked before it was written"
        )
    else:
        yield from _certificate(kernel.certificate)


def _certificate(certificate: Certificate | None) -> Iterator[str]:
    """One comment for each check, with what was not done and why."""
    if certificate is None:
        yield from comment("checked: ", "as every candidate is, without a winner's certificate")
        return
    yield from comment("checked: ", f"{certificate.made_at:%Y-%m-%d}, {certificate.summary}")
    for check in certificate.checks:
        yield from comment("         ", check.line)


def _usage(
    kernel: StoredKernel, kernels: Iterable[str], file_name: str, names: Names
) -> Iterator[str]:
    target, name = _nvcc_target(kernel), printable(file_name)
    program = name.removesuffix(".cu")
    as_program, as_library = "", " -DAUTOGEMM_LIBRARY"
    if names.is_own:
        as_program, as_library = f" -D{names.guard_name}", ""
    yield "// Check and time it (cuBLAS is loaded at run time; with glibc before 2.34 add -ldl):"
    yield f"//     nvcc -O3 {target}{as_program} {name} -o {program} && ./{program}"
    function = names.function(kernel.problem.dtype)
    yield f"// As a library, without main; {function} below is the function to call:"
    yield f"//     nvcc -O3 {target}{as_library} -c {name}"
    if not names.is_own:
        others = " ".join(f"-D{name}=..." for name in (function, *kernels))
        yield from comment("", f"Two of these in one program need other names: {others}")


def _nvcc_target(kernel: StoredKernel) -> str:
    """The option for nvcc, which also compiles for the plain architecture where -arch names a
    variant of it."""
    suffix = kernel.source.arch_suffix
    arch = f"{kernel.device.arch}{suffix}"
    return f"-gencode arch=compute_{arch},code=sm_{arch}" if suffix else f"-arch=sm_{arch}"


def _speed(kernel: StoredKernel) -> str:
    if kernel.time_us is None:
        return "none: this kernel did not run correctly"
    text = f"{kernel.time_us:.2f} us, {kernel.problem.tflops(kernel.time_us):.2f} TFLOP/s"
    if kernel.l2 is not CacheState.WARM:
        state = "a cold L2 cache" if kernel.l2 is CacheState.COLD else "other data in the L2 cache"
        text += f" with {state} (main below times with a warm one)"
    if kernel.ratio is None:
        return f"{text}; not compared with cuBLAS side by side"
    text += f"; {kernel.ratio:.4f} times the speed of {kernel.baseline or 'cuBLAS'}"
    if kernel.provenance is Provenance.MEASURED:
        text += f" [{kernel.ratio_low:.4f}, {kernel.ratio_high:.4f}], timed side by side"
    return text


def _error(kernel: StoredKernel) -> str:
    verification = kernel.verification
    if kernel.error is None:
        return "not verified" if kernel.time_us is None else "not kept"
    if verification is None:
        return f"relative (Frobenius) {kernel.error:.3g}"
    absolute = verification.max_abs_error
    largest = "largest" if absolute is None else f"largest {absolute:.3g},"
    return (
        f"{largest} {verification.max_error_ratio:.3g} of the bound; "
        f"relative (Frobenius) {verification.error:.3g}"
    )


def _versions(environment: Environment) -> str:
    parts = {
        "driver": environment.driver,
        "CUDA": environment.cuda_runtime,
        "": environment.compiler,
        "cuBLAS": environment.cublas,
        "CuPy": environment.cupy,
        "Python": environment.python,
        "autogemm": environment.autogemm,
    }
    return ", ".join(f"{name} {version}".strip() for name, version in parts.items() if version)


def comment(label: str, text: str) -> list[str]:
    """Comment lines of at most WIDTH columns, the later ones indented under the first."""
    return textwrap.wrap(
        printable(text) or "-",
        WIDTH,
        initial_indent=f"// {label}",
        subsequent_indent=f"// {' ' * len(label)}",
        break_on_hyphens=False,
    )


def printable(text: str) -> str:
    """One line of text that cannot end or continue a comment, nor change the direction of
    writing."""
    folded = " ".join(text.split()).replace("\\", "/")
    shown = "".join(letter if letter.isprintable() else "?" for letter in folded)
    # In C++ before 17 two question marks begin a trigraph: with a slash, a backslash.
    return shown.replace("??", "?.").replace("*/", "* /")


def _promise(family: Family, config: Config, problem: Problem) -> dict[str, object] | None:
    """How exact sums of 8-bit floats are as a whole, of so many results that it can be told."""
    fp32_every = launch_plan(family, config, problem).fp32_every
    promise = promise_of(problem, LEAST_SUMS, fp32_every)
    if promise is None:
        return None
    return {
        "fp32_every": fp32_every,
        "variance": f"{promise.of_sums:.4g}",
        "rms_share": f"{RMS_SHARE}",
        "least_sums": LEAST_SUMS,
        "limit": f"{promise.limit_of_many}",
    }


def host_names(dtype: DType) -> CNames:
    """Callers' names of the element types of a problem's matrices, and of all element types."""
    known: dict[ArgumentType, str] = {one: one.host_type for one in Element}
    return {
        **known,
        ProblemType.AB: known[dtype.ab],
        ProblemType.B: known[dtype.b],
        ProblemType.C: known[dtype.c],
    }


def _formula(problem: Problem) -> str:
    """The formula of C, in the words of the header."""
    if problem.epilogue.is_plain:
        return "alpha * op(A) * op(B) + beta * C"
    return "its epilogue of acc = op(A) * op(B)"


def headers_of(family: Family, problem: Problem, *more: Element) -> list[str]:
    """The headers in which the C types of an exported function, and more types, are declared."""
    dtype = problem.dtype
    own = (rule.argument.element(dtype) for rule in arguments_of(family, problem))
    elements = (dtype.ab, dtype.b, dtype.c, *(one for one in own if one is not None), *more)
    return list(dict.fromkeys(one.host_header for one in elements if one.host_header))


# Where an exported program keeps values that are not members of its problem.
_MATRICES_IN_TEST = {
    **{"A": "x.a.data", "B": "x.b.data", "C": "x.c.data"},
    **{"workspace": "x.workspace.data", "workspace_bytes": "x.workspace.count"},
    **dict.fromkeys((OFFSETS, COUNTS), "x.of_groups.data"),
}


def _in_test(family: Family, problem: Problem) -> dict[str, str]:
    """Arguments other than sizes that the exported program passes to the exported function."""
    own = {
        rule.name: float_literal(rule.neutral) if rule.extent is None else f"x.{rule.name}.data"
        for rule in arguments_of(family, problem)
    }
    return _MATRICES_IN_TEST | own
