"""Defaults of options: typed before environment before autogemm.toml; sections of help; logs."""

import json
import logging
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from autogemm.cli import COMMANDS, main
from autogemm.cli.sections import SectionedCommand


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


def render(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["render", *arguments], prog_name="autogemm")


def has_layout(result: Result, layout: str) -> bool:
    assert result.exit_code == 0, result.output
    return f"Layout {layout}" in result.stdout


def test_typed_before_environment_before_file_before_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few = ("--rung", "naive", "--gpu", "h100")
    assert has_layout(render(*few), "nn")
    users = tmp_path / "settings" / "autogemm" / "autogemm.toml"
    users.parent.mkdir(parents=True)
    users.write_text('[all]\nlayout = "tt"\n')
    assert has_layout(render(*few), "tt")
    Path("autogemm.toml").write_text('[all]\nlayout = "tt"\n[render]\nlayout = "nt"\n')
    assert has_layout(render(*few), "nt")
    monkeypatch.setenv("AUTOGEMM_RENDER_LAYOUT", "tn")
    assert has_layout(render(*few), "tn")
    assert has_layout(render(*few, "--layout", "nn"), "nn")


def test_lists_flags_and_commands_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.toml").write_text(
        '[render]\nrung = "tiled"\ngpu = "h100"\nfix = ["BM=16", "BN=16", "BK=16", "UNROLL=16"]\n'
        '[db.path]\ndb = "x.db"\n'
    )
    runner = CliRunner()
    shown = runner.invoke(main, ["--config-file", "mine.toml", "render"])
    assert "BM = 16" in shown.stdout, shown.stderr
    monkeypatch.setenv("AUTOGEMM_CONFIG_FILE", "mine.toml")
    monkeypatch.delenv("AUTOGEMM_DB")
    assert runner.invoke(main, ["db", "path"]).stdout.endswith("x.db\n")
    monkeypatch.setenv("AUTOGEMM_GPUS_JSON", "1")
    assert json.loads(runner.invoke(main, ["gpus", "h100"]).stdout)[0]["short_name"] == "h100"


WRONG = [
    ("[tnue]", "section 'tnue' is not the name of a command; did you mean 'tune'?"),
    ("[render]\nlayuot = 'nn'", "[render] has no option 'layuot'; did you mean 'layout'?"),
    ("[db]\nbset = 1", "'bset'; did you mean 'best'?"),
    ("[db]\nbest = 1", "write [db.best]"),
    ("layout = 'nn'", "layout is in no section"),
    ("[render]\nlayout = ['nn']", "render.layout cannot be ['nn']"),
    ("[render]\nforce = 1", "render.force is true or false, not 1"),
    ("[render", "is not TOML"),
    ("[render]\nlayout = 'xx'", "'xx' is not one of 'nn', 'nt', 'tn', 'tt' (from autogemm.toml)"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[text for text, _ in WRONG])
def test_a_wrong_file_is_one_line(text: str, said: str) -> None:
    Path("autogemm.toml").write_text(text)
    command = "db" if "[db]" in text else "render"
    words = [command, *(["best"] if command == "db" else ["--rung", "naive"])]
    result = CliRunner().invoke(main, words, prog_name="autogemm")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert said in line
    assert "autogemm.toml" in line


def test_a_wrong_value_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_RENDER_LDA", "wide")
    result = render("--rung", "naive")
    assert result.exit_code == 2
    assert "(from the environment: AUTOGEMM_RENDER_LDA)" in result.stderr


def test_no_two_options_have_one_variable() -> None:
    found: dict[str, str] = {}
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        commands = command.commands if isinstance(command, click.Group) else {"": command}
        for below, one in commands.items():
            assert one is not None
            for option in one.params:
                if isinstance(option, click.Option) and option.envvar != "AUTOGEMM_DB":
                    assert isinstance(option.envvar, str)
                    place = f"{name} {below} {option.name}"
                    assert found.setdefault(option.envvar, place) == place
    assert {"AUTOGEMM_TUNE_MAX_ERROR", "AUTOGEMM_DB_BEST_GPU", "AUTOGEMM_TUNE_SIZE"} <= set(found)


def test_the_options_of_tune_are_in_sections() -> None:
    command = main.get_command(click.Context(main), "tune")
    assert isinstance(command, SectionedCommand)
    parent = click.Context(main, **main.context_settings)
    listed = [name for names in command.sections.values() for name in names]
    options = command.get_params(click.Context(command, parent=parent))
    own = [max(one.opts, key=len) for one in options if isinstance(one, click.Option)]
    assert sorted(listed) == sorted(own), "each option stands in one section"
    help_text = CliRunner().invoke(main, ["tune", "-h"]).stdout
    titles = [line[:-1] for line in help_text.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles == list(command.sections)


def test_a_log_holds_what_was_done_and_an_error_with_its_cause() -> None:
    result = render("--rung", "tield", "--log-file", "log.txt", "-v")
    assert result.exit_code == 2
    log = Path("log.txt").read_text()
    assert "ERROR" in log
    assert "Traceback" in log
    assert "no rung 'tield'" in log
    assert "ended after" in log
    assert "INFO" in result.stderr
    assert logging.getLogger("autogemm").handlers == [], "the next command has its own"
    refused = render("--rung", "tiled", "--log-file", "no/such/folder")
    assert refused.exit_code == 2
    assert "--log-file no/such/folder: No such file" in refused.stderr
