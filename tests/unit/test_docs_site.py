"""The website: every page has its place, every link leads somewhere, the reference is complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from autogemm.catalogue.ladder import rungs
from autogemm.cli import COMMANDS

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "site"))
import reference
import stage

# They are in the extras `docs` and `dev`.
for package in ("sphinx", "myst_parser", "furo"):
    pytest.importorskip(package)

SITE = stage.ROOT / "docs" / "site"


def built(source: Path, builder: str) -> subprocess.CompletedProcess[str]:
    """Build as `make docs` does; ``dummy`` reads and links all pages, and writes none."""
    options = ("--quiet", "--fail-on-warning", "--keep-going", "--builder", builder)
    command = [sys.executable, "-m", "sphinx", *options, "-c", SITE, source, source / "_out"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_page_and_link_of_the_site_is_good(tmp_path: Path) -> None:
    stage.stage(tmp_path / "source")
    reference.write(tmp_path / "source")
    done = built(tmp_path / "source", "dummy")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_broken_section_and_a_lost_page_fail_the_build(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# Home\n\n[there](other.md#no-section)\n")
    (tmp_path / "other.md").write_text("# Other\n\n[back](index.md#home)\n")
    done = built(tmp_path, "html")
    assert done.returncode == 1
    assert "no-section" in done.stderr
    assert "other.md: WARNING: document isn't included in any toctree" in done.stderr
    page = (tmp_path / "_out" / "index.html").read_text()
    # Links apart, a page of the theme loads nothing from elsewhere.
    assert "Home" in page
    assert not re.findall(r'(?:src=|<link[^>]* href=)"https?://', page)


def test_links_are_moved_with_their_pages(tmp_path: Path) -> None:
    folder = stage.Stage(tmp_path, stage.pages())
    moved = folder.relinked(
        "docs/kernels/README.md", "[a](../README.md) [b](../../README.md#results)"
    )
    assert moved == "[a](../contents.md) [b](../index.md#results)"
    moved = folder.relinked(
        "README.md", "[t](benchmarks/results/scale.txt) <!-- note -->\n\n    [c](d)\n"
    )
    assert moved == "[t](files/benchmarks/results/scale.txt)\n\n    [c](d)\n"
    assert (tmp_path / "files/benchmarks/results/scale.txt").is_file()
    with pytest.raises(FileNotFoundError, match=r"none\.md"):
        folder.relinked("README.md", "[x](none.md)")


def test_the_chart_follows_the_colours_of_the_site(tmp_path: Path) -> None:
    page = (stage.ROOT / "README.md").read_text()
    shown = stage.Stage(tmp_path, stage.pages()).relinked("README.md", page)
    assert "<picture>" not in shown
    assert ":class: only-light" in shown
    assert (tmp_path / "files/docs/img/overview_dark.svg").is_file()


def test_the_reference_is_of_the_program() -> None:
    families = "\n".join(reference.families())
    assert "| `BM` |" in families
    assert "## gemm_wgmma" in families
    assert '"worth_trying"' in "\n".join(reference.schemas())
    assert "autofunction:: autogemm.gemm" in "\n".join(reference.functions())
    sources = "\n".join(reference.sources())
    assert sources.count("gemm_kernel(") >= len(rungs())
    # The coalesced kernel differs from the uncoalesced one by the order of its threads.
    assert "+    const int thread_m = thread / THREADS_N;" in sources
    helped = "\n".join(reference.commands())
    assert [f"## autogemm {name}\n" in helped for name in COMMANDS] == [True] * len(COMMANDS)
    assert "## autogemm db best\n" in helped
    assert "--until-ratio" in helped
