"""Arguments of a family's own on the CPU: every access of them is checked."""

from pathlib import Path

import pytest
from argument_family import biased_family
from click.testing import CliRunner

from autogemm.cli import main
from autogemm.codegen import render
from autogemm.emulator import Emulator, EmulatorReport, FindingKind
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, launch_plan

pytestmark = pytest.mark.emulated

PROBLEM = Problem(5, 7, 9, Layout.NT, beta=0.5, ldc=8)


def verified(emulator: Emulator, family: Family, problem: Problem = PROBLEM) -> EmulatorReport:
    config = family.seeds[0]
    return emulator.verify(
        render(family, config, problem), launch_plan(family, config, problem), problem
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_a_bias_that_is_neutral_gives_the_plain_gemm(
    emulator: Emulator, tmp_path: Path, seed: int
) -> None:
    family = biased_family(tmp_path / "biased")
    config = family.seeds[seed]
    source, plan = render(family, config, PROBLEM), launch_plan(family, config, PROBLEM)
    report = emulator.verify(source, plan, PROBLEM)
    assert report.ok, report.message


@pytest.mark.parametrize(
    ("edit", "kind", "where"),
    [
        (("bias[n]", "bias[n + 1]"), FindingKind.OUT_OF_BOUNDS, "bias[7]"),
        (("bias[n]", "bias[n - 1]"), FindingKind.OUT_OF_BOUNDS, "bias[-1]"),
        (("extent: N", "extent: N - 1"), FindingKind.OUT_OF_BOUNDS, "bias[6]"),
        (
            ("bias[n]", "(const_cast<float*>(bias)[n] = 0.0f)"),
            FindingKind.INPUT_WRITTEN,
            "bias[0]",
        ),
        # Not neutral: the plain GEMM is what is checked.
        (("neutral: 0", "neutral: 2"), FindingKind.WRONG_VALUE, "C[0,0]"),
        (("neutral: 1", "neutral: -1"), FindingKind.WRONG_VALUE, "C[0,0]"),
    ],
)
def test_what_is_wrong_with_a_bias_is_found(
    emulator: Emulator, tmp_path: Path, edit: tuple[str, str], kind: FindingKind, where: str
) -> None:
    report = verified(emulator, biased_family(tmp_path / "biased", edit))
    assert (report.findings[0].kind, report.findings[0].where) == (kind, where)


def test_a_bias_of_16_bits_beside_matrices_of_32(emulator: Emulator, tmp_path: Path) -> None:
    """Accesses are told apart by the smallest element of all."""
    halves = (("type: c, extent: N", "type: f16, extent: N"), ("bias[n]", "(float)bias[n]"))
    report = verified(emulator, biased_family(tmp_path / "right", *halves))
    assert report.ok, report.message
    beyond = biased_family(tmp_path / "wrong", *halves, ("(float)bias[n]", "(float)bias[n + 1]"))
    assert verified(emulator, beyond).findings[0].where == "bias[7]"


def test_the_command_verifies_a_family_with_arguments(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "none.db"))

    def verify(*edits: tuple[str, str]) -> str:
        biased_family(tmp_path / "biased", *edits)
        arguments = ["verify", "--gpu", "h100", "--family", str(tmp_path / "biased")]
        return CliRunner().invoke(main, [*arguments, "--fix", "BM=32"]).output

    assert "cases passed" in verify()
    assert "bias[" in verify(("bias[n]", "bias[n + 1]"))
