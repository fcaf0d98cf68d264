"""Configs of several families, moved to where they are legal."""

from collections.abc import Sequence
from contextlib import suppress

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space import Family, broken_constraints, fitted
from autogemm.support.errors import UsageError


class Snapper:
    """Calling it gives what of a config is run at a problem; answers are remembered.

    That is the config, but for what edges and rows there ask for (`autogemm.space.fitted`). None
    where no config with the same tiles is legal, and for a config that these families do not have
    (any more).
    """

    def __init__(self, families: Sequence[Family], device: Device) -> None:
        self._families = {family.name: family for family in families}
        self._device = device
        self._known: dict[tuple[Config, Problem], Config | None] = {}

    def __call__(self, config: Config, problem: Problem) -> Config | None:
        """See the class."""
        if (config, problem) not in self._known:
            self._known[config, problem] = self._snapped(config, problem)
        return self._known[config, problem]

    def unchanged(self, config: Config, problem: Problem) -> Config | None:
        """The config itself where it is legal: what was measured there."""
        family = self._families.get(config.family)
        with suppress(UsageError):
            if family and not broken_constraints(family, config, problem, self._device):
                return config
        return None

    def family(self, config: Config) -> Family:
        """The family that a config is of."""
        return self._families[config.family]

    def _snapped(self, config: Config, problem: Problem) -> Config | None:
        family = self._families.get(config.family)
        if family is None or not family.fits(problem.dtype):
            return None
        with suppress(UsageError):
            return fitted(family, config, problem, self._device)
        return None
