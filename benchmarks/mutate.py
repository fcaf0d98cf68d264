"""Plant bugs in modules and say which of them no test sees: `make mutate MODULES="dispatch/rule"`.

mutmut changes one operator, number, name or condition at a time and runs the tests of that module,
which `[tool.autogemm.mutate]` of pyproject.toml names. All happens in a copy of the tree.
"""

import fnmatch
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("autogemm", "benchmarks", "contrib", "db", "docs", "search_spaces", "templates", "tests")
SETTINGS = """
[tool.mutmut]
source_paths = ["autogemm"]
only_mutate = ["autogemm/{module}.py"]
also_copy = {copied}
pytest_add_cli_args = ["-n", "0", "-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = {tests}
use_git_change_detection = false
"""


def tests_of(module: str, settings: dict[str, list[str]]) -> list[str]:
    """The test files of a module: those of the first pattern that fits, in the order written."""
    for pattern, names in settings.items():
        if fnmatch.fnmatch(module, pattern):
            return [f"tests/{name}.py" for name in names]
    known = ", ".join(settings)
    raise SystemExit(f"no tests are named for {module}: [tool.autogemm.mutate] knows {known}")


def survivors(module: str, tests: list[str], most_seconds: float) -> int:
    """Print each planted bug that the tests do not see; return how many these are."""
    with tempfile.TemporaryDirectory(prefix="autogemm-mutate-") as name:
        tree = Path(name)
        files = [path.name for path in ROOT.iterdir() if path.is_file()]
        for folder in COPIED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / folder, tree / folder, ignore=ignored)
        for file in files:
            shutil.copy(ROOT / file, tree / file)
        with (tree / "pyproject.toml").open("a") as project:
            copied = [*COPIED, *files]
            project.write(SETTINGS.format(module=module, copied=copied, tests=tests))
        return _run(tree, module, most_seconds)


def _run(tree: Path, module: str, most_seconds: float) -> int:
    mutmut = [sys.executable, "-m", "mutmut"]
    log = tree / "mutmut.log"
    with log.open("w") as output:
        try:
            subprocess.run(
                [*mutmut, "run", "--max-children", "2"],
                cwd=tree,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=most_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"{module}: stopped after {most_seconds:g} s")
    counts = re.findall(r"(\d+)/(\d+) +\S+ (\d+)", log.read_text())
    if not counts:
        raise SystemExit(f"{module}: mutmut planted nothing\n{log.read_text()[-2000:]}")
    tried, total, caught = counts[-1]
    print(f"{module}: {total} planted, {tried} tried, {caught} caught")
    listed = subprocess.run(
        [*mutmut, "results"], cwd=tree, capture_output=True, text=True, check=False
    )
    names = re.findall(r"(\S+): survived", listed.stdout)
    for name in names:
        shown = subprocess.run(
            [*mutmut, "show", name], cwd=tree, capture_output=True, text=True, check=False
        )
        print(shown.stdout)
    return len(names)


def main() -> int:
    """Exit code 1 where a bug survived."""
    modules = [one.removeprefix("autogemm/").removesuffix(".py") for one in sys.argv[1:]]
    if not modules:
        raise SystemExit('which modules? For example: make mutate MODULES="tuning/task/accuracy"')
    with (ROOT / "pyproject.toml").open("rb") as project:
        settings = tomllib.load(project)["tool"]["autogemm"]["mutate"]
    most_seconds = settings.pop("most_seconds")
    for module in modules:
        if not (ROOT / "autogemm" / f"{module}.py").is_file():
            raise SystemExit(f"there is no module autogemm/{module}.py")
    found = [survivors(one, tests_of(one, settings), most_seconds) for one in modules]
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
