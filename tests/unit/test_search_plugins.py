"""Samplers that installed packages register in the group ``autogemm.samplers``."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_search_space import ok as timed
from fake_search_space import tiles, tiles_time_us

from autogemm.bench.strategies import known_strategies
from autogemm.cli import main
from autogemm.search import Search, sampler_names
from autogemm.support.errors import UsageError

EXTENDING = Path(__file__).parents[2] / "docs" / "extending.md"


def install(folder: Path, package: str, module: str, *names: str, code: str) -> None:
    """A distribution as pip leaves it."""
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name.replace('_', '-')} = {module}:{name}" for name in names]
    (info / "entry_points.txt").write_text("\n".join(["[autogemm.samplers]", *lines, ""]))
    (folder / f"{module}.py").write_text(code)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "").parent == tmp_path:
            del sys.modules[name]


def proposals(sampler: str, count: int = 12) -> list[int]:
    space = tiles()
    search = Search(space, sampler, 1)
    indices = []
    for _ in range(count):
        proposal = search.ask()
        assert proposal is not None
        indices.append(proposal.index)
        search.tell(proposal, timed(proposal.config, tiles_time_us(proposal.config)))
    return indices


def test_the_example_of_the_docs_is_found_and_searches(site: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", EXTENDING.read_text(), re.DOTALL)
    install(site, "last-first", "last_first", "last_first", code=code)
    assert sampler_names()[-1] == "last-first"
    assert "last-first" in known_strategies()
    seeds = list(tiles().seeds)
    indices = proposals("last-first")
    assert indices[: len(seeds)] == seeds
    rest = [index for index in range(len(tiles())) if index not in seeds]
    assert indices[len(seeds) :] == rest[::-1][: 12 - len(seeds)]


def test_a_sampler_of_optuna_proposes_legal_configs_once(site: Path) -> None:
    code = (
        "from optuna.samplers import RandomSampler\n"
        "def chance(space, seed): return RandomSampler(seed=seed)\n"
    )
    install(site, "chance", "chance_of_it", "chance", code=code)
    assert len(set(proposals("chance"))) == 12


def test_the_command_line_finds_it(site: Path, tmp_path: Path) -> None:
    code = (
        "from autogemm.search.samplers import UniformSampler\n"
        "def mine(space, seed): return UniformSampler(space, seed)\n"
    )
    install(site, "mine", "mine_alone", "mine", code=code)
    tune = ("tune", "--gpu", "recorded", "--size", "1024", "--trials", "3", "-q")
    done = CliRunner().invoke(main, [*tune, "--sampler", "mine", "--db", str(tmp_path / "a.db")])
    assert done.exit_code == 0, done.output
    unknown = CliRunner().invoke(main, [*tune, "--sampler", "mime"])
    assert unknown.exit_code == 2
    assert "unknown sampler 'mime'; did you mean 'mine'" in unknown.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import no_such_module", "cannot be made (ModuleNotFoundError: No module named"),
        ("", "cannot be made (AttributeError: module 'broken_one' has no attribute 'broken'"),
        ("def broken(space): return None", "cannot be made (TypeError: broken() takes 1"),
        ("def broken(space, seed): raise ValueError('no\\nluck')", "(ValueError: no); choose"),
        ("def broken(space, seed): return 'x'", "is a str: it must be an optuna.samplers."),
    ],
)
def test_what_is_wrong_with_a_package_is_one_line(site: Path, code: str, message: str) -> None:
    install(site, "broken", "broken_one", "broken", code=code)
    with pytest.raises(UsageError) as caught:
        Search(tiles(), "broken", 0)
    assert str(caught.value).startswith("the sampler 'broken' of the package broken")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_packages_with_one_name_are_named(site: Path) -> None:
    for package in ("first", "second"):
        install(site, package, f"{package}_one", "twin", code="def twin(space, seed): ...")
    with pytest.raises(UsageError, match="first and second each bring a sampler 'twin'"):
        Search(tiles(), "twin", 0)


def test_the_projects_own_names_are_its_own(site: Path) -> None:
    install(site, "usurper", "usurper_one", "random", code="def random(space, seed): return 0")
    assert sampler_names().count("random") == 1
    assert len(set(proposals("random"))) == 12
