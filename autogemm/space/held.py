"""The part of a family's expressions that a kernel's text has as constants, and its signature."""

from autogemm.model.config import Config, Value
from autogemm.model.problem import Problem
from autogemm.model.signature import Signature, gemm_signature
from autogemm.space.derived import derive_values, given_values
from autogemm.space.expressions.expression import Expression
from autogemm.space.expressions.parsing import parse_expression
from autogemm.space.family import Family, specialised_values
from autogemm.space.inputs import arguments_of


class HeldValues:
    """The values that one kernel's text holds whatever sizes it is called with.

    ``constants`` are the config's values, transpositions, element types, and the derived quantities
    that follow from these. ``specialised`` are ``guard_*`` and ``vec_*``: they follow from the
    problem that the text was emitted for, and keep their values of then.
    """

    def __init__(self, family: Family, config: Config, problem: Problem) -> None:
        self.specialised = {
            name: value
            for name, value in derive_values(family, config, problem).items()
            if name.startswith(("guard_", "vec_")) and isinstance(value, int)
        }
        self.constants = family.completed(config).as_dict() | specialised_values(problem)
        for name, expression in family.derive.items():
            text = self.c_text(expression)
            if name not in self.specialised and text.lstrip("-").isdigit():
                self.constants[name] = int(text)

    @property
    def values(self) -> dict[str, Value]:
        """All of them, by name."""
        return self.constants | self.specialised

    def c_text(self, expression: Expression) -> str:
        """The expression in C++, as it was written, with these values folded in."""
        return written(expression).to_c(self.values)


def written(expression: Expression) -> Expression:
    """The expression as written: derived quantities put in place could not be held any more."""
    return parse_expression(expression.text, expression.origin)


def signature_of(family: Family, config: Config, problem: Problem) -> Signature:
    """The arguments that the config's kernels take, in order.

    Raises FamilyError for a workspace that some sizes need and others do not: a kernel's text is
    one for all sizes.
    """
    given = given_values(family, config, problem)
    num_bytes = family.workspace_bytes
    needed = family.value_of(num_bytes, given)
    # The second way to ask is exact and slow.
    if (
        not needed
        and num_bytes.to_c(family.completed(config).as_dict() | specialised_values(problem)) != "0"
        and HeldValues(family, config, problem).c_text(num_bytes) != "0"
    ):
        raise num_bytes.error(
            f"is 0 for {problem.label} and not for other sizes: write it so that it is 0 for all "
            "sizes or for none"
        )
    return gemm_signature(
        [rule.argument for rule in arguments_of(family, problem)],
        workspace=bool(needed),
        tensor_maps=[rule.name for rule in family.tensor_maps if family.value_of(rule.when, given)],
        batched=not problem.batch.is_one,
        grouped=not problem.groups.is_none,
        masked=problem.groups.masked,
    )
