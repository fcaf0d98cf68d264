"""Defaults of options from the environment and from a file, ``autogemm.toml``.

The command line comes first, then ``AUTOGEMM_COMMAND_OPTION``, then the file, then the default in
the help.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from autogemm.support.errors import UsageError
from autogemm.support.naming import did_you_mean

FILE_NAME = "autogemm.toml"
# A section for every command that has such an option.
ALL = "all"
MAX_BYTES = 100_000
_FILE = "autogemm.defaults_file"


def name_variables(command: click.Command, path: tuple[str, ...]) -> None:
    """Let each option of a command, and of those below it, be set by the environment."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.envvar is None:
            words = ("autogemm", *path, _long_name(parameter))
            parameter.envvar = "_".join(words).replace("-", "_").upper()
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            name_variables(below, (*path, name))


def _long_name(option: click.Option) -> str:
    """Return ``max-error`` for ``--max-error``: the longest name that does not turn the option
    off."""
    return max(option.opts, key=len).lstrip("-")


def read_defaults(
    context: click.Context, place: str | None, names: Sequence[str], command: click.Command
) -> None:
    """Give a command and those below it the defaults of the file ``place``, or of the one that
    `default_files` finds.

    ``names`` are those of all commands. Raises UsageError for a file with a setting that no command
    has.
    """
    path = Path(place) if place else next((one for one in default_files() if one.is_file()), None)
    if path is None:
        return
    sections = _sections(path)
    for name in sections:
        if name not in (ALL, *names):
            known = did_you_mean(name, (ALL, *names))
            raise UsageError(f"{path}: section {name!r} is not the name of a command{known}")
    for_all = sections.get(ALL, {})
    own = sections.get(command.name or "", {})
    assert command.name is not None
    defaults = _defaults(path, (command.name,), command, own, for_all)
    context.default_map = {command.name: defaults}
    context.meta[_FILE] = str(path)


def default_files() -> Iterator[Path]:
    """Yield the places where the file may be: this folder, and the user's folder of settings."""
    import platformdirs

    yield Path(FILE_NAME)
    yield Path(platformdirs.user_config_dir("autogemm")) / FILE_NAME


def source_of(context: click.Context, parameter: click.Parameter) -> str:
    """Return where the value of an option comes from; empty if it comes from the command line."""
    source = context.get_parameter_source(parameter.name or "")
    if source is click.core.ParameterSource.ENVIRONMENT:
        names = parameter.envvar or ""
        names = names if isinstance(names, str) else " ".join(names)
        return f" (from the environment: {names})"
    if source is click.core.ParameterSource.DEFAULT_MAP:
        return f" (from {context.meta.get(_FILE)})"
    return ""


def _sections(path: Path) -> dict[str, dict[str, Any]]:
    import tomllib

    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise UsageError(f"{path}: more than {MAX_BYTES:,} bytes: not a file of defaults")
        sections = tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    for name, section in sections.items():
        if not isinstance(section, dict):
            raise UsageError(
                f"{path}: {name} is in no section: write [tune], or [{ALL}] for every command, "
                "above it"
            )
    return sections


def _defaults(
    path: Path,
    names: tuple[str, ...],
    command: click.Command,
    own: Mapping[str, Any],
    for_all: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the defaults of a command by the names of its parameters, nested for a group."""
    options = {
        _long_name(one): one for one in command.params if isinstance(one, click.Option) and one.name
    }
    below = command.commands if isinstance(command, click.Group) else {}
    for name in own:
        if name.replace("_", "-") not in options and name not in below:
            known = did_you_mean(name, (*options, *below))
            raise UsageError(f"{path}: [{'.'.join(names)}] has no option {name!r}{known}")
    given = {**for_all, **{name: value for name, value in own.items() if name not in below}}
    found: dict[str, Any] = {}
    for name, value in given.items():
        option = options.get(name.replace("_", "-"))
        if option is not None and option.name is not None:
            found[option.name] = _value(path, (*names, name), option, value)
    for name, one in below.items():
        section = own.get(name, {})
        if not isinstance(section, dict):
            raise UsageError(f"{path}: {name} is a command: write [{'.'.join((*names, name))}]")
        found[name] = _defaults(path, (*names, name), one, section, for_all)
    return found


def _value(path: Path, names: tuple[str, ...], option: click.Option, value: Any) -> Any:
    """Return a value for click. Raises UsageError for one that no option accepts."""
    where = f"{path}: {'.'.join(names)}"
    if option.is_flag and not isinstance(value, bool):
        raise UsageError(f"{where} is true or false, not {value!r}")
    if option.multiple:
        value = value if isinstance(value, list) else [value]
    kinds = (bool,) if option.is_flag else (str, int, float)
    every = value if isinstance(value, list) and option.multiple else [value]
    if not all(type(one) in kinds for one in every):
        raise UsageError(f"{where} cannot be {value!r}: write a string or a number")
    return value
