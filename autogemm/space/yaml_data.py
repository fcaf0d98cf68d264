"""Files of families as data: YAML without aliases and repeated keys, read fast and refused well.

libyaml's parser takes a sixth of the time of PyYAML's own, and the messages of the latter are the
ones that people read: what the first does not take is read again by the second.
"""

from contextlib import suppress
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver


def load_yaml(data: bytes) -> Any:
    """Return what the YAML says.

    Raises yaml.YAMLError for what is no YAML, for an alias (a small file could mean a huge one) and
    for a key that is there twice (YAML would silently keep the last); RecursionError for lists or
    mappings nested too deep.
    """
    if yaml.__with_libyaml__:
        with suppress(yaml.YAMLError):
            return yaml.load(data, _FastLoader)
    return yaml.load(data, _Loader)


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuses aliases."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"the alias *{event.anchor} is not allowed, write the value out",
                problem_mark=event.start_mark,
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuses repeated keys."""
        seen: set[str] = set()
        names = (key for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key in names:
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value!r} is there twice, name each once",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _FastLoader(_Loader):
    """Composes nodes as the other does, from the events of libyaml's parser."""

    def __init__(self, stream: bytes) -> None:
        from yaml._yaml import CParser

        parser = CParser(stream)
        names = ("check_event", "peek_event", "get_event", "dispose")
        vars(self).update({name: getattr(parser, name) for name in names})
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
