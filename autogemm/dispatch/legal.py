"""Configs of several families, moved to where they are legal."""

import functools
from collections.abc import Sequence
from contextlib import suppress

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space import Family, fitted, is_legal
from autogemm.support.errors import UsageError


class NearestLegal:
    """Calling it returns the config that is run in place of another at a problem; it remembers.

    That is the config itself, but for what edges and rows there ask for (`autogemm.space.fitted`).
    None where no config with the same tiles is legal, and for a config that these families do not
    have (any more).
    """

    def __init__(self, families: Sequence[Family], device: Device) -> None:
        self._families = {family.name: family for family in families}
        self.device = device
        self._known = functools.cache(self._found)

    def __call__(self, config: Config, problem: Problem) -> Config | None:
        """Return the config that is run, None where none is legal."""
        return self._known(config, problem)

    @property
    def families(self) -> tuple[Family, ...]:
        """Return the families that configs may be of."""
        return tuple(self._families.values())

    def is_legal(self, config: Config, problem: Problem) -> bool:
        """Return whether the config itself is legal, as it was measured there."""
        family = self._families.get(config.family)
        with suppress(UsageError):
            return family is not None and is_legal(family, config, problem, self.device)
        return False

    def knows(self, config: Config) -> bool:
        """Return whether one of these families can complete the config."""
        family = self._families.get(config.family)
        with suppress(UsageError):
            return family is not None and bool(family.completed(config))
        return False

    def family(self, config: Config) -> Family:
        """Return the family that a config is of."""
        return self.family_named(config.family)

    def family_named(self, name: str) -> Family:
        """Return the family of that name."""
        return self._families[name]

    def _found(self, config: Config, problem: Problem) -> Config | None:
        family = self._families.get(config.family)
        if family is None or not family.fits(problem.dtype):
            return None
        with suppress(UsageError):
            return fitted(family, config, problem, self.device)
        return None
