"""What a profiler counted of the kernels that a report is about."""

from collections.abc import Iterable

from autogemm.insight.profiling import findings
from autogemm.insight.report.page import Section, Table, table
from autogemm.model.hardware.device import Device
from autogemm.model.results.stored import Profile


def profile_sections(profiles: Iterable[Profile], device: Device) -> tuple[Section, ...]:
    """One section with a table for the newest profile of each kernel and problem; none without.

    ``profiles`` are newest first; those of other cards are left out.
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
        "Counted by the profiler while the kernel ran alone; causes and cures are the usual ones."
    )
    return (Section("profiles", "Profiles", (words,), tables=tuple(tables)),)


def _table(profile: Profile) -> Table:
    rows = [
        {
            "topic": one.topic,
            "figure": one.figure,
            "says": one.says,
            "usual cause": one.cause,
            "usual cure": one.cure,
            "turn": " ".join(one.parameters),
        }
        for one in findings(profile)
    ]
    name = profile.kernel or profile.config.family
    return table(f"{name}, {profile.problem.label}, {profile.profiler}", rows)
