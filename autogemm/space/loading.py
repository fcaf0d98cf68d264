"""Load a `Family` from NAME.yaml and NAME.cu.jinja. A file is data: bounded, checked, never run."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.problem import Problem
from autogemm.space.checking import family_of
from autogemm.space.family import Family, Parameter, Searched
from autogemm.space.schema import MAX_SEEDS, FamilyForm, SeedsForm, first_problem
from autogemm.space.yaml_data import load_yaml
from autogemm.support.errors import FamilyError, NotFoundError, UsageError
from autogemm.support.naming import did_you_mean
from autogemm.support.resources import data_folder
from autogemm.support.templating import texts_of

Form = TypeVar("Form", bound=BaseModel)

MAX_YAML_BYTES = 256 * 1024
TEMPLATE_SUFFIX = ".cu.jinja"


def list_families() -> list[str]:
    """Names of the families that ship."""
    return sorted(path.stem for path in data_folder("search_spaces").glob("*.yaml"))


def default_families(*, emulation: bool = False) -> list[Family]:
    """The families that ship and are searched without being named, by name.

    With ``emulation`` also those that make FP32 of products of lower precision. Raises FamilyError
    when one is broken.
    """
    wanted = {Searched.ALWAYS, *([Searched.WITH_EMULATION] if emulation else [])}
    families = [load_family(name) for name in list_families()]
    return [family for family in families if family.searched in wanted]


def load_family(name_or_path: str | Path) -> Family:
    """The family that ships under that name, or one's own: a folder with one NAME.yaml, or the
    file itself. NAME.cu.jinja lies beside the file, and so may seeds/NAME.yaml.

    Raises NotFoundError when there is no such family, FamilyError when it is broken.
    """
    yaml_path = _yaml_path(name_or_path)
    data = _read(yaml_path)
    form = _form(yaml_path, data, FamilyForm)
    if form.family != yaml_path.stem:
        raise FamilyError(
            f"{yaml_path}: family: the file must be named after its family, got "
            f"{form.family!r}; rename one of them"
        )
    template_path = _template_path(yaml_path)
    beside = seeds_path(yaml_path)
    seeds_data = _read(beside) if beside.is_file() else None
    return _family(
        yaml_path, template_path, data, seeds_data, template_sha256=_template_sha256(template_path)
    )


# The same families are asked for again and again, and checking one takes tens of milliseconds; a
# family is frozen, and made anew when a byte of its files changes.
@lru_cache(maxsize=32)
def _family(
    yaml_path: Path,
    template_path: Path,
    data: bytes,
    seeds_data: bytes | None,
    *,
    template_sha256: str,
) -> Family:
    form = _form(yaml_path, data, FamilyForm)
    beside = seeds_path(yaml_path)
    family = family_of(
        form,
        yaml_path=yaml_path,
        template_path=template_path,
        yaml_sha256=hashlib.sha256(data + (seeds_data or b"")).hexdigest(),
        template_sha256=template_sha256,
    )
    in_file = _form(beside, seeds_data, SeedsForm) if seeds_data is not None else None
    path = beside if in_file else yaml_path
    seeds = list(_seeds(family, form, in_file, beside))
    if len(seeds) > MAX_SEEDS:
        raise FamilyError(f"{path}: seeds: at most {MAX_SEEDS} are allowed, there are {len(seeds)}")
    return replace(
        family,
        seeds=tuple(_config(family, seed) for seed in seeds),
        seed_origins=tuple(seed.origin for seed in seeds),
        seed_sizes=tuple(seed.sizes for seed in seeds),
    )


def seeds_path(yaml_path: Path) -> Path:
    """The file beside a family's YAML that may hold its seeds: ``seeds/NAME.yaml``."""
    return yaml_path.parent / "seeds" / yaml_path.name


def _yaml_path(name_or_path: str | Path) -> Path:
    shipped = list_families()
    if name_or_path in shipped:
        return data_folder("search_spaces") / f"{name_or_path}.yaml"
    path = Path(name_or_path).absolute()
    try:
        if path.is_file():
            return path
        found = sorted(path.glob("*.yaml")) if path.is_dir() else []
    except (OSError, ValueError) as error:
        raise NotFoundError(f"family {str(name_or_path)!r} cannot be read: {error}") from None
    if path.is_dir() and len(found) != 1:
        raise NotFoundError(f"{path}: a family's folder holds one .yaml, this has {len(found)}")
    if not found:
        raise NotFoundError(
            f"no family {str(name_or_path)!r}{did_you_mean(str(name_or_path), shipped)}; known: "
            f"{', '.join(shipped)}, or give a folder with NAME.yaml and NAME{TEMPLATE_SUFFIX}"
        )
    return found[0]


def _template_path(yaml_path: Path) -> Path:
    """Beside the file; in ../templates for the families that ship."""
    name = yaml_path.stem + TEMPLATE_SUFFIX
    folders = (yaml_path.parent, yaml_path.parent.parent / "templates")
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise FamilyError(f"{yaml_path}: its template {name} is missing; put it into {folders[0]}")


def _template_sha256(template_path: Path) -> str:
    """The sha256 of the template and all that it includes or imports, wherever installed."""
    texts = texts_of(template_path)
    digest = hashlib.sha256(texts.pop(template_path.name).encode())
    for name, text in sorted(texts.items()):
        digest.update(f"\n{name}\n{text}".encode())
    return digest.hexdigest()


def _read(yaml_path: Path) -> bytes:
    try:
        with yaml_path.open("rb") as file:
            data = file.read(MAX_YAML_BYTES + 1)
    except OSError as error:
        raise FamilyError(f"{yaml_path}: cannot be read: {error.strerror}") from None
    if len(data) > MAX_YAML_BYTES:
        raise FamilyError(
            f"{yaml_path}: a family may have {MAX_YAML_BYTES} bytes, this file is larger"
        )
    return data


# The same families are asked for again and again.
@lru_cache(maxsize=32)
def _parsed(data: bytes, form: type[BaseModel]) -> BaseModel:
    return form.model_validate(load_yaml(data))


def _form(yaml_path: Path, data: bytes, form: type[Form]) -> Form:
    try:
        parsed = _parsed(data, form)
        assert isinstance(parsed, form)
        return parsed
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise FamilyError(f"{yaml_path}: {place}{error.problem or error.context}") from None
    except ValidationError as error:
        raise FamilyError(f"{yaml_path}: {first_problem(error, form)}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise FamilyError(f"{yaml_path}: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise FamilyError(f"{yaml_path}: lists or mappings are nested too deep") from None


@dataclass(frozen=True, slots=True)
class _Seed:
    """One seed as written, where it stands, and where it was good."""

    place: str
    values: Mapping[str, Value]
    origin: str
    sizes: tuple[tuple[int, int, int, int], ...] = ()


def _seeds(
    family: Family, form: FamilyForm, beside: SeedsForm | None, path: Path
) -> Iterator[_Seed]:
    """The seeds of both files, in the order in which they are tried."""
    if beside is None:
        for i, values in enumerate(form.seeds, start=1):
            yield _Seed(f"{family.yaml_path}: seeds.{i}", values, "")
        return
    if form.seeds:
        raise FamilyError(
            f"{family.yaml_path}: seeds: there are some in {path} too; keep them in one file"
        )
    if beside.family != family.name:
        raise FamilyError(
            f"{path}: family: these are seeds of {family.name}, got {beside.family!r}"
        )
    for i, group in enumerate(beside.seeds, start=1):
        origin = "; ".join(str(one) for one in (group.gpu, group.problems, group.note) if one)
        sizes = tuple(_size(f"{path}: seeds.{i}.problems", one) for one in group.sizes)
        for j, values in enumerate(group.configs, start=1):
            yield _Seed(f"{path}: seeds.{i}.configs.{j}", values, origin, sizes)


def _size(place: str, text: str) -> tuple[int, int, int, int]:
    """The sizes and the number of products of ``4096x256x1024`` or ``128 batch=512``."""
    size, marked, count = text.strip().partition(" batch=")
    try:
        return (*Problem.parse_size(size), Batch(int(count)).count if marked else 1)
    except (UsageError, ValueError) as error:
        what = error if isinstance(error, UsageError) else f"batch={count!r} is no number"
        raise FamilyError(f"{place}: {what}; words go into note") from None


def _config(family: Family, seed: _Seed) -> Config:
    """The seed, which names every parameter without a default once, with one of its values."""
    try:
        values = family.current(seed.values)
    except UsageError as error:
        raise FamilyError(f"{seed.place}: {error}") from None
    names = [parameter.name for parameter in family.parameters]
    for name in values.keys() - set(names):
        hint = did_you_mean(name, names)
        raise FamilyError(f"{seed.place}: no parameter is named {name!r}{hint}")
    return Config.of(family.name, {p.name: _value(seed, values, p) for p in family.parameters})


def _value(seed: _Seed, values: Mapping[str, Value], parameter: Parameter) -> Value:
    place = f"{seed.place}.{parameter.name}"
    value = values.get(parameter.name, parameter.default)
    if value is None:
        raise FamilyError(f"{place}: a seed names every parameter, this one is missing")
    if not parameter.allows(value):
        listed = " ".join(parameter.texts)
        raise FamilyError(f"{place}: {value!r} is not one of its values: {listed}")
    return value
