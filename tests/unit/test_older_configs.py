"""A parameter that a family got later has its default in configs that were made before."""

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from export_samples import SPLIT_YAML, split_family, stored_kernel
from store_samples import H100, SPEC

from autogemm.codegen import render
from autogemm.codegen.export import export_cuda
from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, FinalsEntry, Provenance
from autogemm.space import Family, broken_constraints, launch_plan, load_family, nearest_legal
from autogemm.store import DecidedRow
from autogemm.support.errors import FamilyError, UsageError
from autogemm.tuning.loop.warm import warm_starts

PROBLEM = Problem(64, 64, 64)
OLD = Config.of("split", {"BM": 16, "VEC": 4})
TODAY = Config.of("split", {"BM": 16, "SPLIT": 4, "VEC": 4, "SCRATCH": 1})


@pytest.fixture
def family(tmp_path: Path) -> Family:
    split_family(tmp_path / "split")
    yaml = SPLIT_YAML.replace("SPLIT: {values: [1, 4],", "SPLIT: {values: [1, 4], default: 4,")
    (tmp_path / "split" / "split.yaml").write_text(yaml)
    return load_family(tmp_path / "split")


def test_the_default_stands_where_the_family_has_it(family: Family) -> None:
    assert family.completed(OLD) == TODAY
    turned_round = Config.of("split", dict(reversed(TODAY.values)))
    assert family.completed(turned_round) == TODAY
    for other in (Config.of("split", {"BM": 16}), Config.of("mine", OLD.as_dict())):
        with pytest.raises(UsageError, match="is not a config of 'split'"):
            family.completed(other)


def test_a_parameter_that_is_gone_may_have_the_value_that_is_emitted_today(tmp_path: Path) -> None:
    split_family(tmp_path / "split")
    path = tmp_path / "split" / "split.yaml"
    path.write_text(SPLIT_YAML + "\nretired: {STREAM: none}\n")
    family = load_family(tmp_path / "split")
    before = TODAY.as_dict()
    assert family.completed(Config.of("split", before | {"STREAM": "none"})) == TODAY
    for other in ({"STREAM": "all"}, {"WAVE": "none"}):
        with pytest.raises(UsageError, match="is not a config of 'split'"):
            family.completed(Config.of("split", before | other))
    path.write_text(SPLIT_YAML + "\nretired: {VEC: 4}\n")
    with pytest.raises(FamilyError, match="the name 'VEC' is taken"):
        load_family(tmp_path / "split")


def test_stored_kernels_of_gemm_wgmma_from_before_stay_of_use() -> None:
    family = load_family("gemm_wgmma")
    seed = family.completed(family.seeds[0])
    assert family.completed(Config.of(family.name, seed.as_dict() | {"STREAM_K": "none"})) == seed


def test_it_is_rendered_launched_and_exported_like_todays(family: Family) -> None:
    assert render(family, OLD, PROBLEM).text == render(family, TODAY, PROBLEM).text
    assert launch_plan(family, OLD, PROBLEM) == launch_plan(family, TODAY, PROBLEM)
    assert broken_constraints(family, OLD, PROBLEM, H100) == []
    assert nearest_legal(family, OLD, PROBLEM, H100) == TODAY
    old, today = (
        export_cuda(stored_kernel(family, PROBLEM, config), family, "a.cu", date(2026, 1, 1))
        for config in (OLD, TODAY)
    )
    behind = "// autogemm:kernel:begin"
    assert old.partition(behind)[2] == today.partition(behind)[2]


def test_a_search_starts_from_it(family: Family) -> None:
    entry = FinalsEntry("", OLD, "", (1.0,), 1.0, 1.0, 1.0, tied=False, verification=None)
    finals = Finals((entry,), entry, 1, Provenance.MEASURED)
    spec = replace(SPEC, problem=Problem(32, 64, 64))
    row = DecidedRow(1, spec, finals, datetime(2026, 11, 1, tzinfo=UTC))
    (start,) = warm_starts([row], replace(SPEC, problem=PROBLEM), (family,), run_id=2)
    assert start.configs == (TODAY,)
