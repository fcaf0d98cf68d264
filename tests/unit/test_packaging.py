"""An installed wheel finds what a checkout finds."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from autogemm.support.resources import data_folder

ROOT = Path(__file__).parents[2]
DATA_FOLDERS = ("templates", "search_spaces", "db/migrations", "db/recordings", "db/catalogue")


# The variable that leads this run to the checkout must not lead the installed package there.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def files_below(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)) for path in found if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with the wheel; its dependencies are those of here."""
    pytest.importorskip("build", reason="python -m build is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")

    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    # Behind the wheel; .pth files of an editable installation are not followed from here.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


def output(folder: Path, command: list[str | Path]) -> str:
    result = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    return result.stdout


def installed_python(installed: Path, program: str) -> str:
    # Not in the checkout, whose package would come first.
    command = [installed / "python", "-c", program]
    return output(installed, command).strip()


def test_wheel_holds_every_data_file(installed: Path) -> None:
    package = Path(installed_python(installed, "import autogemm; print(autogemm.__path__[0])"))
    assert package.is_relative_to(installed.parent)
    assert files_below(ROOT / "autogemm") <= files_below(package)
    for name in DATA_FOLDERS:
        program = (
            f"from autogemm.support.resources import data_folder; print(data_folder({name!r}))"
        )
        folder = Path(installed_python(installed, program))
        assert folder.is_relative_to(package)
        assert files_below(folder) == files_below(ROOT / name)


def test_installed_program_runs_on_its_own_data(installed: Path) -> None:
    def autogemm(*arguments: str) -> str:
        return output(installed, [installed / "autogemm", *arguments])

    assert "Find the fastest GEMM kernel" in autogemm("-h")
    assert "gemm_kernel" in autogemm("render", "--gpu", "h100")
    found = ("--db", str(installed / "a.db"))
    autogemm("tune", "--gpu", "recorded", "--size", "1024", "--trials", "2", "-q", *found)
    autogemm("export", "--no-verify", *found, str(installed / "best.cu"))
    assert "autogemm_sgemm(" in (installed / "best.h").read_text()
    assert "1024 nn f32" in autogemm("db", "best", *found)
    assert "recorded" in autogemm("db", "best", "--catalogue", "--gpu", "h200", "--dtype", "bf16")
    assert "legal" in autogemm("space", "--gpu", "h100")


# Prints the help of a command and of all its subcommands, and how many there are.
EACH_HELP = """
import click
from autogemm.cli import main

def helps(command, name, above=None):
    context = click.Context(command, info_name=name, parent=above)
    yield command.get_help(context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from helps(command.get_command(context, inner), inner, context)

found = list(helps(main, "autogemm"))
assert all(one.startswith("Usage: autogemm") for one in found)
print(len(found))
"""


def test_installed_commands_have_help(installed: Path) -> None:
    from_wheel = int(installed_python(installed, EACH_HELP))
    assert from_wheel > 30
    assert from_wheel == int(output(ROOT, [sys.executable, "-c", EACH_HELP]))


def test_checkout_uses_its_own_data() -> None:
    for name in DATA_FOLDERS:
        assert data_folder(name) == ROOT / name


def test_incomplete_installation_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="not completely installed: no folder 'nonsense'"):
        data_folder("nonsense")
