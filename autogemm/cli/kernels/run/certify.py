"""``autogemm verify --certify``: the checks of a winner, on a stored kernel."""

from contextlib import closing
from dataclasses import asdict

from autogemm.cli.output import Form, print_rows
from autogemm.cli.prose import say
from autogemm.cli.rows import open_database
from autogemm.codegen import render
from autogemm.model.kernel import Candidate
from autogemm.model.results.certificate import Verdict
from autogemm.model.results.stored import StoredKernel
from autogemm.space import Family, launch_plan
from autogemm.store import open_store
from autogemm.support.errors import AutogemmError, NotFoundError
from autogemm.targets import choose_target
from autogemm.verify import Certifier

CHECK_COLUMNS = ("name", "verdict", "what", "tool", "seconds")


def stored_kernel(db: str | None, key: str, family: Family) -> StoredKernel:
    """Return a kernel of the database. Raises NotFoundError for one of another family."""
    with open_database(db) as store:
        kernel = store.stored_kernel(key)
    if kernel.source.family != family.name:
        raise NotFoundError(
            f"kernel {key} belongs to the family {kernel.source.family}, not {family.name}: give "
            "--family"
        )
    return kernel


def certify_kernel(db: str | None, key: str, family: Family, form: Form) -> None:
    """Make, store and print a certificate. Raises AutogemmError when the kernel fails.

    Raises DeviceError without a GPU of the model that the kernel was tuned on, NotFoundError for a
    kernel that this version of the family does not emit.
    """
    kernel = stored_kernel(db, key, family)
    source, problem = kernel.source, kernel.problem
    if render(family, source.config, problem).code != source.code:
        raise NotFoundError(
            f"kernel {key} was emitted by another version of the family {family.name}: tune again"
        )
    run_id = kernel.run_id
    if run_id is None:
        raise NotFoundError(
            f"kernel {key} was benchmarked or profiled but never tuned: a certificate belongs to a "
            "run, so tune first"
        )
    target = choose_target(kernel.device.name, [family.name]).target
    compiler = target.compiler()
    assert compiler is not None, "a GPU was named"
    with closing(target), closing(compiler):
        compiled = compiler.compile(source, target.device.sm)
        plan = launch_plan(family, source.config, problem)
        certifier = Certifier(
            family, target, compiler, progress=lambda step: say(f"{step} ...", err=True)
        )
        certificate = certifier.certify(Candidate(source, plan, compiled), problem)
    with open_store(db) as store:
        store.record_certificate(run_id, source.sha256, certificate)
    print_rows([asdict(check) for check in certificate.checks], CHECK_COLUMNS, form)
    if certificate.verdict is Verdict.FAILED:
        raise AutogemmError(f"kernel {key} fails: {certificate.reason}")
