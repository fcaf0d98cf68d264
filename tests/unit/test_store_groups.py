"""Groups of rows in the database and in files: kept, told apart, found by a filter."""

from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import SPEC, new_store, ok, source

from autogemm.exchange import Format, import_results, write_results
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.store import BestQuery, RunCopy, RunState, open_store

PLAIN = Problem(4096, 4096, 4096, Layout.NT)
TEXTS = (
    *("", "8 uniform", "8 zipf=1.1 seed=3", "80 uniform", "4000,0,96"),
    *("8 uniform masked=99", "300,0 masked", "128 uniform used=8"),
)


@pytest.mark.parametrize("wanted", [Format.JSONL, Format.CSV])
def test_problems_differ_by_their_groups(tmp_path: Path, wanted: Format) -> None:
    with new_store(tmp_path) as store:
        for text in TEXTS:
            problem = replace(PLAIN, groups=Groups.parse(text))
            run = store.begin_run(replace(SPEC, problem=problem))
            store.record_trial(run, 0, ok(64, 2800.0), source(64))
            store.finish_run(run, RunState.FINISHED)

        def found(query: BestQuery) -> list[str]:
            runs = (one for one in store.copies(query) if isinstance(one, RunCopy))
            return [str(one.spec.problem.groups) for one in runs]

        assert found(BestQuery()) == list(TEXTS)
        assert found(BestQuery(groups="none")) == [""]
        of_eight = ["8 uniform", "8 zipf=1.1 seed=3", "8 uniform masked=99"]
        assert found(BestQuery(groups="8")) == of_eight
        assert found(BestQuery(groups="8 uniform")) == ["8 uniform"]
        assert found(BestQuery(groups="300,0 masked")) == ["300,0 masked"]
        assert found(BestQuery(groups="4000,0,96")) == ["4000,0,96"]
        file = tmp_path / "results"
        file.write_text("".join(write_results(store, BestQuery(), None, wanted).pieces))
    with open_store(str(tmp_path / "b.db")) as store:
        import_results(store, file)
        runs = (one for one in store.copies() if isinstance(one, RunCopy))
        assert [str(one.spec.problem.groups) for one in runs] == list(TEXTS)
