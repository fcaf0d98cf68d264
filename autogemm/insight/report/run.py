"""The report of one run."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from markupsafe import Markup

from autogemm.insight.analysis import RunTrials, importance, read_run
from autogemm.insight.explain import (
    Explanation,
    Missing,
    Request,
    Times,
    Tools,
    conclusion,
    device_facts,
    explain,
    headline,
    or_missing,
    tables,
)
from autogemm.insight.profiling import findings
from autogemm.insight.report.data import run_data
from autogemm.insight.report.page import (
    Page,
    Plot,
    Section,
    Table,
    filled,
    highlighted,
    table,
    terms,
)
from autogemm.insight.report.words import advice, outcome_words
from autogemm.model.config import Value, shared_values
from autogemm.model.hardware.device import Device
from autogemm.model.results.outcome import Environment, FinalsEntry
from autogemm.model.results.stored import Profile, StoredKernel
from autogemm.space import load_family
from autogemm.store import BestQuery, Store
from autogemm.support.errors import NotFoundError

PLOTS = (
    Plot("history", "Search history", "Each dot is a config that ran; the line is the best so far"),
    Plot("distribution", "All configs", "The number of configs at each speed"),
    Plot(
        "importance",
        "Which parameters matter",
        "How much each parameter distinguishes the fastest tenth of the configs",
    ),
    Plot("parameter", "One parameter", "The speeds of the configs with each of its values"),
    Plot("heatmap", "Two parameters", "The best config for each pair of values"),
)


def run_report(store: Store, query: BestQuery, tools: Tools | None) -> Page:
    """The newest run that matches. Without ``tools`` the winner is not explained.

    Raises NotFoundError when no run with trials matches.
    """
    trials = read_run(store, replace(query, family=None))
    kernel = _winner(store, trials)
    profiles = store.profiles(kernel.source.sha256) if kernel is not None else []
    return run_page(trials, kernel, _explained(trials, kernel, tools), profiles)


def run_page(
    trials: RunTrials,
    kernel: StoredKernel | None,
    explained: Explanation | Missing,
    profiles: Sequence[Profile] = (),
) -> Page:
    """A run, its winner and why that is as fast as it is. ``profiles`` are newest first."""
    shares = importance(trials, trials.family())
    spec, meanings = trials.run.spec, meanings_of(trials)
    return Page(
        title=f"{spec.problem.label} on {spec.device.name}",
        subtitle=f"autogemm run {trials.run.run_id}, {trials.run.started_at:%Y-%m-%d %H:%M} UTC",
        provenance=spec.provenance,
        sections=(
            Section(
                "summary",
                "Summary",
                tuple(outcome_words(trials)),
                (
                    ("What limits it", _limits(explained)),
                    (
                        "What to try",
                        tuple(advice(trials, explained, shares, is_stored=kernel is not None)),
                    ),
                ),
            ),
            _finals(trials, meanings),
            Section(
                "search", "Search", plots=PLOTS, has_filter=True, tables=_ends(trials, meanings)
            ),
            *_parameters(trials, meanings),
            _explanation(explained),
            *profile_sections(profiles, spec.device),
            _source(kernel),
            Section("environment", "Environment", tables=_environment(trials, kernel)),
        ),
        data={"run": run_data(trials, shares), "meanings": meanings},
    )


def _limits(explained: Explanation | Missing) -> tuple[str, ...]:
    if isinstance(explained, Missing):
        return (f"The limits of the kernel are not known: {explained.missing}",)
    return tuple(conclusion(explained))


def _winner(store: Store, trials: RunTrials) -> StoredKernel | None:
    try:
        return store.stored_kernel(BestQuery(run_id=trials.run.run_id))
    except NotFoundError:
        return None


def _explained(
    trials: RunTrials, kernel: StoredKernel | None, tools: Tools | None
) -> Explanation | Missing:
    if kernel is None:
        return Missing("no kernel of this run is stored")
    if tools is None:
        return Missing("it was left out")
    config = kernel.source.config
    times_us = {
        trial.outcome.config.sha256: trial.outcome.time_us
        for trial in trials.trials
        if trial.outcome.time_us is not None
    }
    own_us, run = times_us.get(config.sha256), trials.run
    times: Times | Missing = Missing("it has no time from the search")
    if own_us is not None:
        times = Times(run.run_id, run.spec.provenance, own_us, times_us)

    def explained() -> Explanation:
        family, spec = load_family(config.family), run.spec
        request = Request(family, config, spec.problem, spec.device, times, kernel.source)
        return explain(request, tools)

    return or_missing(explained)


def meanings_of(trials: RunTrials) -> dict[str, str]:
    """The meaning of each parameter, from the families that are at hand.

    For a name that several families have, it is the meaning in the family of the best trial.
    """
    meanings: dict[str, str] = {}
    for name in (trials.family(), *trials.run.spec.families):
        family = or_missing(partial(load_family, name))
        if not isinstance(family, Missing):
            for parameter in family.parameters:
                meanings.setdefault(parameter.name, parameter.doc)
    return meanings


def _parameters(trials: RunTrials, meanings: dict[str, str]) -> tuple[Section, ...]:
    """The text of the tooltips as a list, for print and for screens without a pointer."""
    finals = trials.run.finals
    config = finals.winner.config if finals is not None else None
    values = config.as_dict() if config is not None else {}
    rows = [
        {"parameter": name, "winner's value": values.get(name), "meaning": meaning}
        for name, meaning in meanings.items()
        if not values or name in values
    ]
    return (Section("parameters", "Parameters", tables=(table("Their meaning", rows),)),) * bool(
        rows
    )


def _finals(trials: RunTrials, meanings: dict[str, str]) -> Section:
    finals = trials.run.finals
    if finals is None:
        return Section("finals", "Finals", ("The run had no finals.",))
    shared = shared_values([entry.config for entry in finals.entries if entry.config])
    rows = [
        {"place": place} | _entry(trials, entry, shared, meanings)
        for place, entry in enumerate(finals.entries, 1)
    ]
    rows.append({"place": None} | _entry(trials, finals.baseline, shared, meanings))
    optional = ("interval", "registers", "energy mJ", "tie")
    columns = [n for n in rows[0] if n not in optional or any(row[n] is not None for row in rows)]
    how = "recorded" if trials.is_recorded else f"{finals.rounds} interleaved rounds"
    notes = (Markup("all of them: ") + terms(shared.items(), meanings),) if shared else ()
    lost = [
        {"status": one.status.value, "reason": one.reason, "config": terms(one.config, meanings)}
        for one in finals.disqualified
    ]
    best = table(f"The best candidates beside cuBLAS, {how}", rows, columns, notes)
    taken_out = table("Removed from the finals", lost)
    return Section("finals", "Finals", tables=filled(best, taken_out))


def _entry(
    trials: RunTrials, entry: FinalsEntry, shared: dict[str, Value], meanings: dict[str, str]
) -> dict[str, Any]:
    """The numbers first: on a phone the rest is a swipe away."""
    config = entry.config
    own = [(name, value) for name, value in config or () if name not in shared]
    return {
        "time us": entry.time_us,
        "TFLOP/s": trials.run.spec.problem.tflops(entry.time_us),
        "x cuBLAS": f"{entry.ratio:.3f}",
        "interval": "{:.3f} to {:.3f}".format(*entry.interval) if entry.interval else None,
        "registers": entry.registers,
        "energy mJ": entry.energy_mj,
        "tie": "tied" if entry.tied else None,
        "family": config.family if config else entry.name,
        "config": terms(own, meanings),
    }


def _ends(trials: RunTrials, meanings: dict[str, str]) -> tuple[Table, ...]:
    rows = [{"end": status.value, "configs": num} for status, num in trials.counts().items()]
    failed = [
        {
            "trial": trial.number,
            "end": trial.outcome.status.value,
            "reason": trial.outcome.reason[:300],
            "config": terms(trial.outcome.config, meanings),
        }
        for trial in trials.trials
        if trials.merit(trial.outcome) is None
    ]
    most = 100
    note = () if len(failed) <= most else (f"the first {most} of {len(failed)}",)
    return filled(
        table("How the trials ended", rows),
        table("Configs that did not run", failed[:most], notes=note),
    )


def _explanation(explained: Explanation | Missing) -> Section:
    heading = "What limits the winner"
    if isinstance(explained, Missing):
        return Section("explanation", heading, (f"Not available: {explained.missing}",))
    found = tables(explained)
    return Section(
        "explanation",
        heading,
        (
            *headline(explained),
            *(f"{one.title}: not available: {one.missing}" for one in found if one.missing),
        ),
        tables=tuple(
            table(one.title, one.rows, one.columns, one.notes) for one in found if one.rows
        ),
    )


def _source(kernel: StoredKernel | None) -> Section:
    if kernel is None:
        return Section("source", "Source", ("No kernel of this run is stored.",))
    return Section(
        "source",
        "The winner's source",
        (f"Kernel {kernel.kernel_id}, sha256 {kernel.source.sha256}.",),
        code=highlighted(kernel.source.text),
    )


def _environment(trials: RunTrials, kernel: StoredKernel | None) -> tuple[Table, ...]:
    run = trials.run
    facts: dict[str, Any] = {
        "run": run.run_id,
        "command": run.spec.command,
        "state": run.state.value,
        "times": run.spec.provenance.value,
        "objective": run.spec.objective.value,
        "sampler": f"{run.spec.sampler}, seed {run.spec.seed}",
        "L2 before each launch": run.spec.l2.value,
        "matrices": run.spec.fill.value,
    }
    return (
        facts_table("Run", facts),
        *place_tables(run.spec.environment, run.spec.device),
        *_certificate(kernel),
    )


def _certificate(kernel: StoredKernel | None) -> tuple[Table, ...]:
    if kernel is None or kernel.certificate is None:
        return ()
    rows = [
        {"check": one.name, "verdict": one.verdict.value, "tool": one.tool, "what": one.what}
        for one in kernel.certificate.checks
    ]
    return (table(f"Checks of the winner: {kernel.certificate.verdict.value}", rows),)


def place_tables(environment: Environment, device: Device) -> tuple[Table, ...]:
    """Return the software and the GPU; only the name of a recorded GPU may be known."""
    gpu = {name: value or None for name, value in device_facts(device).items()}
    return facts_table("Software", asdict(environment)), facts_table("GPU", gpu)


def facts_table(caption: str, facts: dict[str, Any]) -> Table:
    """Names and values, below each other."""
    return table(caption, [{"name": name, "value": value} for name, value in facts.items()])


def profile_sections(profiles: Iterable[Profile], device: Device) -> tuple[Section, ...]:
    """One section with a table for the newest profile of each kernel and problem; none without.

    ``profiles`` are newest first; those of other GPUs are left out.
    """
    newest: dict[tuple[str, str], Profile] = {}
    for profile in profiles:
        if profile.device.name != device.name:
            continue
        newest.setdefault((profile.kernel_sha256, profile.problem.label), profile)
    tables = [_table(profile) for profile in newest.values() if findings(profile)]
    if not tables:
        return ()
    words = (
        "Counters of the profiler while the kernel ran alone, with the usual causes and remedies."
    )
    return (Section("profiles", "Profiles", (words,), tables=tuple(tables)),)


def _table(profile: Profile) -> Table:
    rows = [
        {name.replace("_", " "): cell for name, cell in one.row.items()}
        for one in findings(profile)
    ]
    name = profile.kernel or profile.config.family
    return table(f"{name}, {profile.problem.label}, {profile.profiler}", rows)
