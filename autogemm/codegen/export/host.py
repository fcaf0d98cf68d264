"""The launcher of an exported kernel: what the family's expressions are in C++."""

import re

from autogemm.model.hardware.device import Device
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.space import (
    ALIGNMENT_BYTES,
    Expression,
    Family,
    LaunchRule,
    TensorMapRule,
    derive_values,
    device_values,
    parse_expression,
    specialised_values,
)


class Host:
    """What the launcher needs of a family, as C++ expressions over M N K lda ldb ldc.

    ``guard_*`` and ``vec_*`` are what the kernel was specialised for by its problem. They hold
    their values of then, and are what the launcher checks.
    """

    def __init__(self, family: Family, source: KernelSource, problem: Problem) -> None:
        self._family = family
        self._dtype = problem.dtype
        derived = derive_values(family, source.config, problem)
        self._special = {
            name: value
            for name, value in derived.items()
            if name.startswith(("guard_", "vec_")) and isinstance(value, int)
        }
        self._constants = family.completed(source.config).as_dict() | specialised_values(problem)
        for name, expression in family.derive.items():
            text = _written(expression).to_c(self._constants | self._special)
            if name not in self._special and text.lstrip("-").isdigit():
                self._constants[name] = int(text)

    def preconditions(self) -> list[str]:
        """Expressions that must be 0: edges for which no code was emitted."""
        left_out = [name for name, value in self._special.items() if value == 0]
        guards = (self._in_place(name) for name in left_out if name.startswith("guard_"))
        texts = (guard.to_c(self._constants | self._special) for guard in guards)
        return [text for text in dict.fromkeys(texts) if text != "0"]

    def _in_place(self, name: str) -> Expression:
        """A derived quantity with those that it reads in place: what a caller can see."""
        expression = _written(self._family.derive[name])
        for other in reversed(self._family.derive):
            if other in expression.names and other not in self._special:
                expression = expression.substitute({other: _written(self._family.derive[other])})
        return expression

    def size_conditions(self, device: Device) -> list[str]:
        """The family's constraints, as far as M, N and K decide them on that device."""
        constants = self._constants | device_values(device)
        texts = []
        for constraint in self._family.constraints:
            expression = _written(constraint.require)
            for name in reversed(self._family.derive):
                if name in expression.names:
                    inner = _written(self._family.derive[name])
                    expression = expression.substitute({name: inner})
            texts.append(expression.to_c(constants))
        sizes = {"M", "N", "K", "ceil_div", "min", "max"}
        return [
            text for text in dict.fromkeys(texts) if _names(text) and set(_names(text)) <= sizes
        ]

    def vectors(self) -> list[tuple[str, int, int]]:
        """Matrix, elements and bytes per access, for those that are accessed by vectors or TMA."""
        sizes = {"A": self._dtype.ab, "B": self._dtype.ab, "C": self._dtype.c}
        widths = {name: self._special.get(f"vec_{name.lower()}", 1) for name in sizes}
        for rule in self._map_rules():
            if rule.matrix in sizes:
                width = ALIGNMENT_BYTES // sizes[rule.matrix].size_bytes
                widths[rule.matrix] = max(widths[rule.matrix], width)
        return [
            (name, width, width * sizes[name].size_bytes)
            for name, width in widths.items()
            if width > 1
        ]

    def launches(self) -> list[dict[str, str]]:
        """Kernel, grid extents, block extents and shared memory of each launch."""
        return [
            {
                "kernel": rule.kernel,
                "grid": f"{{{self._c_texts(rule.grid)}}}",
                "threads": self._c_texts(rule.threads),
                "smem_bytes": self._c_text(rule.smem_bytes),
            }
            for rule in self._rules()
        ]

    def _rules(self) -> list[LaunchRule]:
        """Those that this config has."""
        return [rule for rule in self._family.launch if self._c_text(rule.when) != "0"]

    def tensor_maps(self) -> list[dict[str, str]]:
        """The C++ initialisers of each tensor map."""
        return [self._tensor_map(rule) for rule in self._map_rules()]

    def _tensor_map(self, rule: TensorMapRule) -> dict[str, str]:
        element = rule.element_for(self._dtype)
        offset = self._c_text(rule.offset_bytes)
        swizzle = self._c_text(rule.swizzle)
        return {
            "matrix": rule.matrix,
            "type": f"CU_TENSOR_MAP_DATA_TYPE_{element.tensor_map_type}",
            "element_bytes": str(element.size_bytes),
            "base": rule.matrix + ("" if offset == "0" else f" + {offset}"),
            "columns": self._c_text(rule.extent[0]),
            "rows": self._c_text(rule.extent[1]),
            "ld": self._c_text(rule.ld),
            "box_columns": self._c_text(rule.box[0]),
            "box_rows": self._c_text(rule.box[1]),
            "swizzle": "CU_TENSOR_MAP_SWIZZLE_" + ("NONE" if swizzle == "0" else f"{swizzle}B"),
        }

    def _map_rules(self) -> list[TensorMapRule]:
        """Those that this config has."""
        return [rule for rule in self._family.tensor_maps if self._c_text(rule.when) != "0"]

    def num_arguments(self) -> int:
        """Of the kernels, before the tensor maps."""
        return 12 if self.workspace_bytes() else 11

    def workspace_bytes(self) -> str:
        """Empty where none is needed."""
        text = self._c_text(self._family.workspace_bytes)
        return "" if text == "0" else text

    def _c_texts(self, extents: tuple[Expression, ...]) -> str:
        """x, y and z; extents that are not given are 1."""
        return ", ".join([*map(self._c_text, extents), "1", "1"][:3])

    def launch_expressions(self) -> list[Expression]:
        """All that the launches and their tensor maps read."""
        launches = [
            expression
            for rule in self._rules()
            for expression in (*rule.grid, *rule.threads, rule.smem_bytes)
        ]
        maps = [
            expression
            for rule in self._map_rules()
            for expression in (*rule.extent, rule.ld, *rule.box, rule.offset_bytes)
        ]
        return launches + maps

    def quantities(self, *expressions: Expression) -> list[tuple[str, str]]:
        """Name and C++ expression of each derived quantity that they need and that depends on the
        problem, in order.
        """
        texts = {
            name: self._c_text(expression)
            for name, expression in self._family.derive.items()
            if name not in self._constants and name not in self._special
        }
        needed = set(_names(" ".join(map(self._c_text, expressions))))
        for name in reversed(texts):
            if name in needed:
                needed.update(_names(texts[name]))
        return [(name, text) for name, text in texts.items() if name in needed]

    def _c_text(self, expression: Expression) -> str:
        return _written(expression).to_c(self._constants | self._special)


def _names(c_text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", c_text)


def _written(expression: Expression) -> Expression:
    """As it was written: derived quantities that were put in place could no longer be held at the
    values that the kernel's text has.
    """
    return parse_expression(expression.text, expression.origin)
