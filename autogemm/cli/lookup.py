"""Look up what options name: a GPU's facts, a family, a config."""

import json
from typing import Any

from autogemm.catalogue.gpus import find_device
from autogemm.catalogue.ladder import find_rung
from autogemm.cli.options import ConfigOptions, is_typed
from autogemm.cli.prose import say
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.space import Family, load_family, parse_fix
from autogemm.support.errors import UsageError
from autogemm.targets import attached_gpus

# `--gpu auto` means this to commands that only need a GPU's facts, where none is attached.
FALLBACK_GPU = "h100"


def device_facts(gpu: str) -> Device:
    """Return the facts of a known GPU; ``auto`` is the attached one, else an H100 and a notice.

    For commands that read limits only; nothing runs on the GPU. Raises NotFoundError for an
    unknown name.
    """
    if gpu != "auto":
        return find_device(gpu)
    attached = attached_gpus()
    if attached:
        return attached[0].device
    device = find_device(FALLBACK_GPU)
    say(f"no GPU is attached: using the limits of {device.name} (choose with --gpu)", err=True)
    return device


def config_from(options: ConfigOptions) -> tuple[Family, Config]:
    """Return the config that the options name, and its family. Raises UsageError if they name
    none."""
    named = (options.rung, options.seed_index, options.config_json)
    if sum(one is not None for one in named) > 1:
        raise UsageError("--rung, --seed-index and --config exclude each other: choose one")
    family, climbed = family_and_rung(options.family, options.rung)
    if climbed is not None:
        values = climbed.as_dict()
    elif options.config_json is not None:
        values = family.current(_given_values(options.config_json))
    else:
        values = _seed_values(family, options.seed_index or 0)
    return family, _checked_config(family, values | _fixed_values(family, options.fix))


def family_and_rung(family: str, rung: str | None) -> tuple[Family, Config | None]:
    """Return the family, which is the rung's if one is named, and the rung's config.

    Raises UsageError for a ``--family`` that is not the rung's.
    """
    if rung is None:
        return load_family(family), None
    found = find_rung(rung)
    if is_typed("family") and family != found.family:
        raise UsageError(
            f"{rung} is a rung of the family {found.family}, not {family}: leave --family out"
        )
    loaded = load_family(found.family)
    return loaded, found.config(loaded.seeds[0])


def _seed_values(family: Family, index: int) -> dict[str, Any]:
    """Return the values of one of the family's seeds. Raises UsageError beyond the last."""
    if index >= len(family.seeds):
        raise UsageError(
            f"the family {family.name} has {len(family.seeds)} seeds, counted from 0: "
            f"there is no seed {index}"
        )
    return family.seeds[index].as_dict()


def _given_values(text: str) -> dict[str, Any]:
    """Return what ``--config`` holds. Raises UsageError unless it is a JSON object."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UsageError('--config must be a JSON object such as {"BM": 128, ...}')
    return values


def _fixed_values(family: Family, fix: tuple[str, ...]) -> dict[str, Any]:
    """Return one value for each parameter named by ``--fix``. Raises UsageError for several."""
    fixed = parse_fix(family, fix)
    for name, values in fixed.items():
        if len(values) != 1:
            raise UsageError(f"this command takes one config: give --fix {name} one value")
    return {name: values[0] for name, values in fixed.items()}


def _checked_config(family: Family, values: dict[str, Any]) -> Config:
    """Return the config in the family's order. Raises a UsageError that lists everything that is
    wrong."""
    names = [parameter.name for parameter in family.parameters]
    wrong = [f"unknown {name}" for name in values if name not in names]
    for parameter in family.parameters:
        value: Any = values.get(parameter.name)
        # In JSON, true is not 1, and 128.0 is not 128.
        if type(value) not in (int, str) or not parameter.allows(value):
            allowed = ", ".join(parameter.texts)
            found = "is missing" if value is None else f"cannot be {value!r}"
            wrong.append(f"{parameter.name} {found} (one of {allowed})")
    if wrong:
        raise UsageError(f"this is not a config of {family.name}: {'; '.join(wrong)}")
    return Config.of(family.name, {name: values[name] for name in names})
