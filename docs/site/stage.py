"""Collect the pages of the website: the Markdown of this repository, with links that fit.

    python docs/site/stage.py build/docs-source

The pages are written as they are read on a forge, where a link may lead to any file. On the site a
page has another place, and a file that is no page is downloaded. `docs/README.md`, the index, gives
the navigation: its headings are the captions, its links the pages.
"""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
INDEX = "docs/README.md"
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="(?P<dark>[^"]+)">\s*'
    r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)">\s*</picture>'
)
FENCE = re.compile(r"^```.*?^```$|^    .*?$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r" ?<!--.*?-->")
# Pages outside docs/, and pages whose name differs on the site.
PLACES = {
    "README.md": "index.md",
    INDEX: "contents.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "db/README.md": "database.md",
    "contrib/slurm/README.md": "slurm.md",
}
# Pages that are made when the site is built, by caption: docs/site/reference.py.
GENERATED = {
    "Tutorial": ("tutorial/sources",),
    "Reference": (
        "reference/commands",
        "reference/python",
        "reference/families",
        "reference/schemas",
    ),
}


def pages() -> dict[str, str]:
    """Return the place on the site of each page, by its path in the repository."""
    found = dict(PLACES)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT).as_posix()
        place = name.removeprefix("docs/").replace("README.md", "index.md")
        found.setdefault(name, place)
    return found


@dataclass(frozen=True)
class Stage:
    """The folder that Sphinx reads, and where each page of the repository lies in it."""

    folder: Path
    places: dict[str, str]

    def write(self) -> None:
        """Write every page, and the home page with the navigation."""
        for name, place in self.places.items():
            target = self.folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            text = self.relinked(name, (ROOT / name).read_text())
            if place == "index.md":
                text += "\n" + "\n".join(self.navigation())
            elif place.endswith("/index.md"):
                text += "\n" + "\n".join(toctree("", self._beside(place)))
            target.write_text(text)

    def relinked(self, name: str, text: str) -> str:
        """Return a page with links that lead to pages of the site, or to copies of files.

        Raises FileNotFoundError for a link that leads nowhere in the repository.
        """
        kept: list[str] = []

        def keep(match: re.Match[str]) -> str:
            kept.append(match[0])
            return f"\0{len(kept) - 1}\0"

        def moved(match: re.Match[str]) -> str:
            return self._target(name, match[0])

        def drawn(match: re.Match[str]) -> str:
            schemes = ((scheme, self._target(name, match[scheme])) for scheme in ("light", "dark"))
            return "\n\n".join(
                f"```{{image}} {target}\n:alt: {match['alt']}\n:class: only-{scheme}\n```"
                for scheme, target in schemes
            )

        text = LINK.sub(moved, FENCE.sub(keep, COMMENT.sub("", text)))
        text = PICTURE.sub(drawn, text)
        return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], text)

    def _target(self, name: str, target: str) -> str:
        path, _, section = target.partition("#")
        if not path or "://" in target:
            return target
        found = (ROOT / name).parent.joinpath(path).resolve()
        if not found.exists():
            raise FileNotFoundError(f"{name}: {target} leads nowhere")
        there = found.relative_to(ROOT).as_posix()
        if found.is_dir():
            # A folder has no page; it is shown as what it holds.
            place = self._listing(found, there)
        else:
            place = self.places.get(there) or self._copied(found, there)
        up = "../" * self.places[name].count("/")
        return f"{up}{place}" + (f"#{section}" if section else "")

    def _copied(self, found: Path, there: str) -> str:
        place = f"files/{there}"
        target = self.folder / place
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, target)
        return place

    def _listing(self, found: Path, there: str) -> str:
        place = f"files/{there}/contents.txt"
        (self.folder / place).parent.mkdir(parents=True, exist_ok=True)
        names = sorted(one.name for one in found.iterdir() if not one.name.startswith("."))
        (self.folder / place).write_text("\n".join(names) + "\n")
        return place

    def _beside(self, place: str) -> list[str]:
        """Return the names of the other pages in a page's folder."""
        folder = PurePosixPath(place).parent
        others = (PurePosixPath(one) for one in self.places.values() if one != place)
        return sorted(one.name for one in others if one.parent == folder)

    def navigation(self) -> list[str]:
        """Return the tables of contents, hidden in the page and shown at its side."""
        lines = toctree("", ["contents"])
        for caption, pages_of in index_of((ROOT / INDEX).read_text()):
            paths = [(ROOT / INDEX).parent.joinpath(page).resolve() for page in pages_of]
            entries = [self.places[path.relative_to(ROOT).as_posix()] for path in paths]
            lines += toctree(caption, [*entries, *GENERATED.get(caption, ())])
        return lines


def index_of(text: str) -> list[tuple[str, list[str]]]:
    """Return the captions of the index, each with the pages of its list."""
    sections = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    lists = [re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", one, re.MULTILINE) for one in sections[1::2]]
    return list(zip(sections[::2], lists, strict=True))


def toctree(caption: str, entries: list[str]) -> list[str]:
    """Return one directive of Sphinx that lists pages in the navigation."""
    head = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), ""]
    return [*head, *(str(PurePosixPath(entry).with_suffix("")) for entry in entries), "```", ""]


def stage(folder: Path) -> None:
    """Write the pages of the repository into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    Stage(folder, pages()).write()


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
