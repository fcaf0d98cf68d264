"""The PTX of the templates is what a table says, with the manual's section and reasons."""

import re
from functools import cache

import pytest
from golden_cases import GOLDEN_CASES
from handover import KERNELS
from ptx_wrappers import Emitted, Wrapper, entry_of, table, wrappers_of
from wrapper_bugs import BASES, BUGS, CASES, Golden

from autogemm.catalogue.gpus import find_device
from autogemm.space import broken_constraints, load_family


@cache
def emitted() -> tuple[Emitted, ...]:
    """Each wrapper that stands in a golden source, which take every branch, or in a handover."""
    sources = [case.path.read_text() for case in GOLDEN_CASES]
    sources += [kernel.for_a_gpu().text for kernel in KERNELS.values()]
    found = {(one.name, one.body): one for text in sources for one in wrappers_of(text)}
    return tuple(found.values())


def test_every_wrapper_is_as_the_table_says() -> None:
    wrong = [one.text for one in emitted() if entry_of(one.name).text_of(one) is None]
    assert wrong == []


def test_every_text_of_the_table_is_emitted() -> None:
    known = {(entry.name, text) for entry in table() for text in entry.texts}
    assert known == {
        (entry_of(one.name).name, entry_of(one.name).text_of(one)) for one in emitted()
    }


@pytest.mark.parametrize("entry", table(), ids=lambda entry: entry.name)
def test_an_entry_has_section_and_reasons(entry: Wrapper) -> None:
    assert re.match(r"(9\.7|10)(\.\d+)+ \S", entry.section)
    assert entry.because
    assert all(reason.endswith(".") for reason in entry.because)


def test_a_wrapper_has_planted_bugs_or_says_why_none_is_seen() -> None:
    planted = {entry_of(bug.wrapper).name for bug in BUGS}
    assert [one.name for one in table() if not one.unseen and one.name not in planted] == []


# Code that is right nearly always, and other slips of the pen.
SLIPS = (
    *((".acq_rel", ".relaxed"), (".acq_rel", ".acquire"), (".release", ".relaxed")),
    *(
        (".acquire", ".relaxed"),
        (".acquire.cta", ""),
        (".gpu", ".cta"),
        (".release.cluster", ".release.cta"),
    ),
    *(("::cluster", ""), (".read", ""), (".rn", ".rz"), (".rn", ".rn.ftz"), (".proxy.async", "")),
    *((".mbarrier_init", ""), ("wgmma.fence.sync.aligned;", ""), ("wgmma.commit_group.", "")),
    *((".expect_tx", ""), (".parity", ""), ("volatile", ""), (' : "memory"', ""), ("%1, %2", "%2")),
    *(("[0]), ", "[1]), "), ("d[1])", "d[2])"), ("while (done == 0)", "while (false)")),
    *(
        (", 1, 1", ", -1, 1"),
        ("0xffffffff", "0x1"),
        (".x4.trans", ".x4"),
        (".x4.shared", ".x2.shared"),
    ),
)


@pytest.mark.parametrize(("old", "new"), SLIPS)
def test_a_slip_is_seen(old: str, new: str) -> None:
    slipped = [
        Emitted(one.name, one.start, one.end, one.text.replace(old, new))
        for one in emitted()
        if old in one.text.partition("asm")[2]
    ]
    assert slipped
    assert [one.text for one in slipped if entry_of(one.name).text_of(one) is not None] == []


def test_ptx_that_the_table_does_not_know_is_seen() -> None:
    function = '__device__ void f(int* a) {\n    asm volatile("membar.gl;" ::: "memory");\n}\n'
    (one,) = wrappers_of(function)
    with pytest.raises(AssertionError, match="f has 0 entries"):
        entry_of(one.name)
    kernel = 'extern "C" __global__ void gemm_kernel() {\n    asm volatile("membar.gl;");\n}\n'
    with pytest.raises(AssertionError, match="outside of a wrapper"):
        wrappers_of(function + kernel)


@pytest.mark.parametrize("base", BASES)
def test_bugs_can_be_planted(base: str) -> None:
    """On a GPU as well: they apply, to configs that are legal, each to another text."""
    case = BASES[base]
    _, source, _ = next(case.runs())
    mutants = [bug.planted_in(source).text for bug in BUGS if bug.base == base]
    assert len(set(mutants)) == len(mutants) > 0
    if isinstance(case, Golden):
        golden = CASES[case.name]
        family, device = load_family(golden.family), find_device(golden.gpu)
        for problem in case.problems:
            assert broken_constraints(family, golden.config, problem, device) == []
