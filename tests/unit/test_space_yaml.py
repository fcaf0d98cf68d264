"""YAML of families: libyaml's parser and PyYAML's own take and refuse the same."""

from pathlib import Path

import pytest
import yaml

from autogemm.space import load_yaml, yaml_data
from autogemm.support.resources import data_folder

SHIPPED = sorted(data_folder("search_spaces").rglob("*.yaml"))
needs_libyaml = pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML has no libyaml here")

REFUSED = {
    "alias": b"a: &x [1]\nb: *x\n",
    "repeated key": b"a: 1\nb: {c: 2, c: 3}\n",
    "no YAML": b"a: [1, 2\nb: 3\n",
    "a tab": b"a:\n\t- 1\n",
    "no text": b"a: \xff\xfe\xfa\n",
    "an object": b"a: !!python/object:os.system {}\n",
}


def by_python(data: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patch:
        patch.setattr(yaml, "__with_libyaml__", False)
        return load_yaml(data)


@needs_libyaml
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.name))
def test_both_parsers_read_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = path.read_bytes()
    expected = by_python(data, monkeypatch)
    monkeypatch.setattr(yaml_data, "_Loader", None)  # the second parser is not needed
    assert load_yaml(data) == expected


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_has_the_message_of_pyyaml(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(yaml.YAMLError) as slow:
        by_python(data, monkeypatch)
    with pytest.raises(yaml.YAMLError) as fast:
        load_yaml(data)
    assert str(fast.value) == str(slow.value)


@needs_libyaml
def test_libyaml_s_events_are_checked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("alias", "repeated key"):
        with pytest.raises(yaml.MarkedYAMLError):
            yaml.load(REFUSED[name], yaml_data._FastLoader)


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    with pytest.raises(RecursionError):
        load_yaml(b"[" * 50_000)
