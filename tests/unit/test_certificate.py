"""Certificates: their verdict, what the store keeps, what is shown, who is still the best."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from export_samples import split_family, stored_kernel
from store_samples import CERTIFICATE, H100, SPEC, T4, config, fill, new_store, ok, source

from autogemm.cli import main
from autogemm.codegen.export import export_cuda
from autogemm.dispatch import tuned_sizes
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Certificate, Check, Verdict
from autogemm.space import Family
from autogemm.store import BestQuery, Store
from autogemm.support.errors import NotFoundError

SQUARE = Problem(64, 64, 64)
NOW = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
LATER = replace(CERTIFICATE, made_at=NOW + timedelta(hours=1))
FAILED = Certificate((Check("racecheck", Verdict.FAILED, "a hazard\nin two lines"),), NOW)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as store:
        fill(store)
        yield store


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ("passed passed", Verdict.PASSED),
        ("passed failed", Verdict.FAILED),
        ("not_done passed", Verdict.PASSED),
        ("not_done failed", Verdict.FAILED),
        ("not_done", Verdict.NOT_DONE),
        ("", Verdict.NOT_DONE),
    ],
)
def test_one_failure_is_a_failure_and_nothing_done_is_no_pass(
    verdicts: str, together: Verdict
) -> None:
    checks = tuple(Check("x", Verdict[name.upper()], "y") for name in verdicts.split())
    certificate = Certificate(checks, NOW)
    assert certificate.verdict is together
    assert bool(certificate.reason) is (together is Verdict.FAILED)


def test_what_was_stored_comes_back(store: Store) -> None:
    assert store.stored_kernel(source(128).sha256).certificate == CERTIFICATE
    assert store.stored_kernel(source(64).sha256).certificate is None
    store.record_certificate(1, source(128).sha256, FAILED)
    assert store.stored_kernel(source(128).sha256).certificate == FAILED, "the newest counts"
    with pytest.raises(NotFoundError, match="no kernel"):
        store.record_certificate(1, "0" * 64, FAILED)
    with pytest.raises(NotFoundError, match="no run 99"):
        store.record_certificate(99, source(128).sha256, FAILED)


def test_a_kernel_that_failed_is_never_the_best(store: Store) -> None:
    query = BestQuery(run_id=1)
    assert store.stored_kernel(query).source == source(128)
    store.record_certificate(1, source(128).sha256, FAILED)
    # Its finals have no winner any more: the fastest trial among the others.
    assert store.stored_kernel(query).source == source(64)
    (row,) = store.best(query)
    assert row.config == source(64).config
    store.record_certificate(1, source(128).sha256, LATER)
    assert store.stored_kernel(query).source == source(128), "it passes now"


def test_a_trial_without_a_kernel_may_be_the_best(store: Store) -> None:
    run = store.begin_run(replace(SPEC, device=T4))
    store.record_trial(run, 0, replace(ok(16, 40.0), kernel_sha256=""), None)
    store.record_certificate(1, source(128).sha256, FAILED)
    (row,) = store.best(BestQuery(run_id=run))
    assert row.time_us == 40.0


def test_a_certificate_holds_for_its_device(store: Store) -> None:
    other = store.begin_run(replace(SPEC, device=T4))
    store.record_trial(other, 0, ok(128, 9000.0), source(128))
    assert store.stored_kernel(BestQuery(run_id=other)).certificate is None
    store.record_certificate(1, source(128).sha256, FAILED)
    # It passes on another GPU, which says nothing of this one; and the other way round.
    store.record_certificate(other, source(128).sha256, LATER)
    assert store.stored_kernel(BestQuery(run_id=1)).source == source(64)
    assert store.stored_kernel(BestQuery(run_id=other)).source == source(128)


def test_a_kernel_that_failed_is_no_winner_for_those_who_dispatch(store: Store) -> None:
    run, *_ = store.decided()
    assert [entry.config for entry in run.finals.entries] == [config(128), config(64)]
    store.record_certificate(1, source(128).sha256, FAILED)
    (run,) = store.decided()
    assert [entry.config for entry in run.finals.entries] == [config(64)]
    (tuned,) = tuned_sizes(store.decided(), H100)
    assert (tuned.winner, tuple(tuned.times_us)) == (config(64), (config(64),))
    store.record_certificate(1, source(64).sha256, FAILED)
    assert store.decided() == []


def test_db_show_prints_the_checks(store: Store, tmp_path: Path) -> None:
    arguments = ["db", "show", source(128).sha256[:12], "--db", str(tmp_path / "a.db")]
    text = CliRunner().invoke(main, arguments).output
    assert "certificate" in text
    assert "gpu passed (NVIDIA H100, nvrtc 13.0): 41 of 41 edge cases" in text
    assert "emulator not done: no g++" in text
    as_json = CliRunner().invoke(main, [*arguments, "--json"]).output
    assert '"certificate": "passed"' in as_json
    assert '"certified_at": "2026-11-21T06:30:00+00:00"' in as_json


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return split_family(tmp_path_factory.mktemp("family"))


def header_of(family: Family, certificate: Certificate | None) -> list[str]:
    kernel = replace(stored_kernel(family, SQUARE), certificate=certificate)
    lines = export_cuda(kernel, family, "best.cu", date(2026, 11, 21)).splitlines()
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("//"))]


def test_the_exported_header_tells_what_was_checked_and_what_not(family: Family) -> None:
    text = "\n".join(header_of(family, CERTIFICATE))
    assert "// checked: 2026-11-21, passed: finals, gpu; not done: emulator" in text
    assert "//          gpu passed (NVIDIA H100, nvrtc 13.0): 41 of 41 edge cases" in text
    assert "//          emulator not done: no g++" in text


def test_the_exported_header_says_when_there_is_no_certificate(family: Family) -> None:
    text = "\n".join(header_of(family, None))
    assert "// checked: as every candidate is, without a winner's certificate" in text


def test_what_a_tool_said_stays_inside_the_comment(family: Family) -> None:
    hostile = Check("x", Verdict.FAILED, "\n#error escaped */ \\", "a\ntool")
    lines = header_of(family, Certificate((hostile,), NOW))
    assert any("#error escaped" in line for line in lines)
    assert all(len(line) <= 100 and not line.endswith("\\") for line in lines)
