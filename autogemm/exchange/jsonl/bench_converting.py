"""Benchmarks, profiles and ceilings to lines of a results file, and back."""

from dataclasses import asdict

from autogemm.exchange.jsonl.bench_forms import BenchEntryForm, BenchForm, CeilingsForm, ProfileForm
from autogemm.exchange.jsonl.parts import (
    config_cells,
    config_of,
    fields_of,
    telemetry_form,
    telemetry_of,
    verification_form,
    verification_of,
    where_form,
    where_of,
)
from autogemm.model.benchmark import NOT_STORED, Bench, BenchEntry, BenchSpec
from autogemm.model.config import Config
from autogemm.model.hardware.roofline import Ceilings
from autogemm.model.profile import Profile
from autogemm.store import BenchCopy, CeilingsCopy, ProfileCopy

_BENCH = "provenance command preset seed l2 fill"


def bench_form(copy: BenchCopy) -> BenchForm:
    """A benchmark with all its entries."""
    bench, spec = copy.bench, copy.bench.spec
    return BenchForm(
        **where_form(spec.device, spec.environment),
        **fields_of(spec, _BENCH),
        **fields_of(bench, "started_at finished_at"),
        entries=[_bench_entry_form(entry) for entry in bench.entries],
    )


def bench_copy(form: BenchForm) -> BenchCopy:
    """The same, from its line."""
    return BenchCopy(
        Bench(
            bench_id=NOT_STORED,
            spec=BenchSpec(**where_of(form.device, form.environment), **fields_of(form, _BENCH)),
            **fields_of(form, "started_at finished_at"),
            entries=tuple(map(_bench_entry, form.entries)),
        )
    )


_BENCH_ENTRY = (
    "kernel kind problem status reason kernel_sha256 library method launches_per_sample "
    "ratio ratio_low ratio_high registers"
)


def _bench_entry_form(entry: BenchEntry) -> BenchEntryForm:
    return BenchEntryForm(
        **fields_of(entry, _BENCH_ENTRY),
        **config_cells(entry.config),
        samples_us=list(entry.samples_us),
        verification=verification_form(entry.verification),
        telemetry=telemetry_form(entry.telemetry),
    )


def _bench_entry(form: BenchEntryForm) -> BenchEntry:
    return BenchEntry(
        **fields_of(form, _BENCH_ENTRY),
        config=config_of(form.family, form.config),
        samples_us=tuple(form.samples_us),
        verification=verification_of(form.verification),
        telemetry=telemetry_of(form.telemetry),
    )


_PROFILE = "kernel kernel_sha256 problem profiler made_at"


def profile_form(copy: ProfileCopy) -> ProfileForm:
    """A profile; its kernel's source stands before it."""
    profile = copy.profile
    return ProfileForm(
        **where_form(profile.device, profile.environment),
        **fields_of(profile, _PROFILE),
        **config_cells(profile.config),
        counters=dict(profile.counters),
    )


def profile_copy(form: ProfileForm) -> ProfileCopy:
    """The same, from its line."""
    return ProfileCopy(
        Profile(
            **where_of(form.device, form.environment),
            **fields_of(form, _PROFILE),
            config=Config.of(form.family, form.config),
            counters=tuple(form.counters.items()),
        )
    )


def ceilings_form(copy: CeilingsCopy) -> CeilingsForm:
    """What a card reached."""
    return CeilingsForm(**where_form(copy.device, copy.environment), **asdict(copy.ceilings))


def ceilings_copy(form: CeilingsForm) -> CeilingsCopy:
    """The same, from its line."""
    reached = Ceilings(**fields_of(form, " ".join(Ceilings.__dataclass_fields__)))
    return CeilingsCopy(ceilings=reached, **where_of(form.device, form.environment))
