"""Links and references in the documents lead somewhere: files, sections, decisions, paths."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "db/**/*.md", "contrib/**/*.md")
    for page in ROOT.glob(pattern)
)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# "decision 0012", "decisions 0006 and 0010", also where a comment goes on in the next line.
NUMBER = r"[\s#/*]+\d{4}"
MENTION = re.compile(rf"\bdecisions?({NUMBER}(?:(?:,| and|, and){NUMBER})*)", re.IGNORECASE)
REPOSITORY_PATH = re.compile(
    r"`((?:autogemm|tests|benchmarks|templates|search_spaces|db|docs)/[\w./-]+\.\w+)`"
)
# Results stay as they were printed: they may name the former number of a record.
HISTORY = "benchmarks/results/"
TEXT_SUFFIXES = {".md", ".py", ".jinja", ".yaml", ".yml", ".toml", ".sh", ".txt", ".h", ".cu"}


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors_of(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {anchor(heading) for heading in headings}


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Yield each relative link of a page that leads to no file, or to no section of one."""
    for target in LINK.findall(FENCED.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, section = target.partition("#")
        leads_to = page.parent / path if path else page
        if not leads_to.exists():
            yield target
        elif section:
            there = text if leads_to == page else leads_to.read_text()
            if section not in anchors_of(there):
                yield target


def mentioned_decisions(text: str) -> list[str]:
    return [number for found in MENTION.findall(text) for number in re.findall(r"\d{4}", found)]


def current_decisions() -> set[str]:
    return {path.name[:4] for path in DECISIONS.glob("[0-9]*.md")}


def former_decisions(index: str) -> set[str]:
    """Return the numbers in the index's table of records that moved."""
    table = index.partition("## Former numbers")[2]
    return set(re.findall(r"^\| (\d{4}) \|", table, re.MULTILINE))


def unknown_decisions(path: str, text: str) -> list[str]:
    """Return the numbers that a file mentions and that lead to no record."""
    known = current_decisions()
    if path.startswith(HISTORY):
        known |= former_decisions((DECISIONS / "README.md").read_text())
    return [number for number in mentioned_decisions(text) if number not in known]


def text_files() -> list[Path]:
    """Return the files that git tracks, or would; this one plants violations and is left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = (ROOT / line for line in listed.stdout.splitlines())
    return [
        path
        for path in found
        if path.suffix in TEXT_SUFFIXES and path.is_file() and path != Path(__file__).resolve()
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not list(broken_links(page, page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_pages_name_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        pytest.skip("it names files of former versions")
    named = REPOSITORY_PATH.findall(page.read_text())
    named = [path for path in named if "NAME" not in path and "FAMILY" not in path]
    assert not [path for path in named if not (ROOT / path).exists()]


def test_mentioned_decisions_exist() -> None:
    unknown = {
        str(path.relative_to(ROOT)): numbers
        for path in text_files()
        if (numbers := unknown_decisions(path.relative_to(ROOT).as_posix(), path.read_text()))
    }
    assert not unknown


def test_every_decision_is_listed_and_no_number_is_used_twice() -> None:
    index = (DECISIONS / "README.md").read_text()
    by_topic, _, _ = index.partition("## Former numbers")
    listed = re.findall(r"^- \[(\d{4})\]\(\1-[\w-]+\.md\): ", by_topic, re.MULTILINE)
    assert sorted(listed) == sorted(path.name[:4] for path in DECISIONS.glob("[0-9]*.md"))
    assert len(listed) == len(set(listed))


def test_every_number_below_the_last_one_leads_somewhere() -> None:
    known = current_decisions() | former_decisions((DECISIONS / "README.md").read_text())
    assert {f"{number:04}" for number in range(1, int(max(known)) + 1)} == known


@pytest.mark.parametrize("path", sorted(DECISIONS.glob("[0-9]*.md")), ids=lambda path: path.name)
def test_a_decision_has_its_parts(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.name[:4]}: ")
    for part in ("**Context.**", "**Decision.**", "**Consequences.**"):
        assert text.count(part) == 1, part


def test_planted_links_are_found(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A title, and `code`\n\n```\n# no heading\n```\n")
    good = "[a](other.md) [b](other.md#a-title-and-code) [c](#here) [d](https://e.org)\n\n## Here\n"
    bad = "[a](none.md) [b](other.md#no-heading) [c](#there) [d](../none/)\n"
    page.write_text(good + bad)
    assert not list(broken_links(page, good))
    assert list(broken_links(page, good + bad)) == [
        "none.md",
        "other.md#no-heading",
        "#there",
        "../none/",
    ]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("see decision 9998.", ["9998"]),
        ("(Decisions 0012, 9997 and 9998)", ["9997", "9998"]),
        ("# decisions\n    # 9998, 0012", ["9998"]),
        ("decision\n * 9998", ["9998"]),
        ("a decision tree of 9998 leaves, decision 0012", []),
    ],
)
def test_planted_mentions_are_found(text: str, numbers: list[str]) -> None:
    assert unknown_decisions("autogemm/planted.py", text) == numbers


def test_former_numbers_are_for_results_only() -> None:
    assert unknown_decisions("benchmarks/results/planted.txt", "decision 0061") == []
    assert unknown_decisions("docs/planted.md", "decision 0061") == ["0061"]
