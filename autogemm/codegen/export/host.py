"""The launcher of an exported kernel: the family's expressions in C++."""

import math
import re
from collections.abc import Mapping

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.signature import COUNTS, OFFSETS, ArgumentKind, CNames, gemm_signature
from autogemm.space import (
    ALIGNMENT_BYTES,
    Expression,
    Family,
    HeldValues,
    LaunchRule,
    TensorMapRule,
    arguments_of,
    device_values,
    matrix_of,
    signature_of,
    written,
)
from autogemm.support.errors import ExportError


class Host:
    """A family as the launcher needs it: C++ expressions over M N K lda ldb ldc.

    ``guard_*`` and ``vec_*`` are what the kernel was specialised for by its problem. They keep
    their values from then, and the launcher checks them.

    ``signature`` is that of the kernels, ``exported`` that of the function for callers, which takes
    a workspace whether the kernels need one or not, so that kernels can replace each other.
    """

    def __init__(self, family: Family, config: Config, problem: Problem) -> None:
        self._family = family
        self._problem = problem
        self._dtype = problem.dtype
        self._held = HeldValues(family, config, problem)
        self._special, self._constants = self._held.specialised, self._held.constants
        self.signature = signature_of(family, config, problem)
        self._arguments = arguments_of(family, problem)
        own = [rule.argument for rule in self._arguments]
        self._batched, self._grouped = not problem.batch.is_one, not problem.groups.is_none
        self._masked, self._divides_k = problem.groups.masked, problem.divides_k
        self.exported = gemm_signature(
            own,
            workspace=True,
            batched=self._batched,
            grouped=self._grouped,
            masked=problem.groups.masked,
        )
        self._rows = {
            "A": "K" if problem.layout.trans_a else "M",
            "B": _columns_of_product(problem) if problem.layout.trans_b else "K",
            "C": "M",
        }
        self._columns = {
            "lda": "M" if problem.layout.trans_a else "K",
            "ldb": "K" if problem.layout.trans_b else _columns_of_product(problem),
            "ldc": "N",
        }

    def preconditions(self) -> list[str]:
        """Expressions that must be 0: edges for which no code was emitted."""
        left_out = [name for name, value in self._special.items() if value == 0]
        guards = (self._in_place(name) for name in left_out if name.startswith("guard_"))
        texts = (guard.to_c(self._held.values) for guard in guards)
        return [text for text in dict.fromkeys(texts) if text != "0"]

    def _in_place(self, name: str) -> Expression:
        """A derived quantity in terms of what a caller can see: the quantities that it reads are
        inserted."""
        expression = written(self._family.derive[name])
        for other in reversed(self._family.derive):
            if other in expression.names and other not in self._special:
                expression = expression.substitute({other: written(self._family.derive[other])})
        return expression

    def size_conditions(self, device: Device, counted: str = "") -> list[str]:
        """The family's constraints, as far as M, N and K decide them on that device, with the
        number of products or groups where ``counted`` names it.
        """
        constants = self._constants | device_values(device)
        texts = []
        for constraint in self._family.constraints:
            expression = written(constraint.require)
            for name in reversed(self._family.derive):
                if name in expression.names:
                    inner = written(self._family.derive[name])
                    expression = expression.substitute({name: inner})
            texts.append(expression.to_c(constants))
        sizes = {"M", "N", "K", counted, "ceil_div", "min", "max"}
        return [
            text for text in dict.fromkeys(texts) if _names(text) and set(_names(text)) <= sizes
        ]

    def vectors(self) -> list[tuple[str, int, int]]:
        """Matrix, elements and bytes per access, for those that are accessed by vectors or TMA."""
        sizes = {"A": self._dtype.ab, "B": self._dtype.b, "C": self._dtype.c}
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

    def _launch(self, rule: LaunchRule) -> dict[str, str]:
        """Kernel, grid extents, block extents and shared memory of a launch, and by which function
        it is launched.
        """
        overlaps = self._c_text(rule.overlaps) != "0"
        return {
            "function": "launch_overlap" if overlaps else "launch_kernel",
            "kernel": rule.kernel,
            "grid": f"{{{self._c_texts(rule.grid)}}}",
            "threads": self._c_texts(rule.threads),
            "smem_bytes": self._c_text(rule.smem_bytes),
        }

    def launches(self) -> list[dict[str, str]]:
        """Each launch of the config as the launcher's templates read it."""
        return [self._launch(rule) for rule in self._rules()]

    def _rules(self) -> list[LaunchRule]:
        """The launches that this config has."""
        return [rule for rule in self._family.launch if self._c_text(rule.when) != "0"]

    @property
    def kernels(self) -> dict[str, None]:
        """The names of the kernels that are launched, each once, in order."""
        return dict.fromkeys(rule.kernel for rule in self._rules())

    def _tensor_map(self, rule: TensorMapRule) -> dict[str, object]:
        """The C++ initialisers of a tensor map."""
        element = rule.element_for(self._dtype)
        offset = self._c_text(rule.offset_bytes)
        swizzle = self._c_text(rule.swizzle)
        matrix = matrix_of(rule, self._problem)
        return {
            "matrix": matrix,
            "is_argument": rule.matrix in {"input", "workspace"},
            "type": f"CU_TENSOR_MAP_DATA_TYPE_{element.tensor_map_type}",
            "element_bytes": str(element.size_bytes),
            "base": matrix + ("" if offset == "0" else f" + {offset}"),
            "columns": self._c_text(rule.extent[0]),
            "rows": self._c_text(rule.extent[1]),
            "ld": self._c_text(rule.ld),
            **(self._stacked(rule) if self._batched or self._grouped else {}),
            "box_columns": self._c_text(rule.box[0]),
            "box_rows": self._c_text(rule.box[1]),
            "swizzle": "CU_TENSOR_MAP_SWIZZLE_" + ("NONE" if swizzle == "0" else f"{swizzle}B"),
        }

    def _stacked(self, rule: TensorMapRule) -> dict[str, str]:
        """The number of matrices of a batch, or of groups, that a map describes, and the elements
        from one to the next; 0 where its rows belong to groups.
        """
        if rule.is_divided(self._problem):
            return {"matrices": "0", "matrix_ld": "0"}
        if self._grouped:
            ld = f"{self._rows[rule.matrix]} * ld{rule.matrix.lower()}"
            return {"matrices": "groups", "matrix_ld": ld}
        if rule.matrix == "workspace":
            columns, rows = self._c_text(rule.ld), self._c_text(rule.extent[1])
            return {"matrices": "batch", "matrix_ld": f"({columns}) * ({rows})"}
        name = rule.matrix.lower()
        rows = f"batch_rows_{name}"
        return {
            "matrices": f"{rows} == 0 ? 1 : batch",
            "matrix_ld": f"({rows} == 0 ? {self._rows[rule.matrix]} : {rows}) * ld{name}",
        }

    def _overlapping(self) -> str:
        """A condition in C++: matrices of products overlap, or products share C."""
        shared = {"A": "batch_rows_a != 0 && ", "B": "batch_rows_b != 0 && ", "C": ""}
        return " || ".join(
            f"({shared[name]}batch_rows_{name.lower()} < {rows})"
            for name, rows in self._rows.items()
        )

    def _map_rules(self) -> list[TensorMapRule]:
        """The tensor maps that this config has."""
        return [rule for rule in self._family.tensor_maps if self._c_text(rule.when) != "0"]

    def context(self, names: CNames) -> dict[str, object]:
        """All that the launcher's templates read. ``names`` are C++ names of element types."""
        addresses = (one for one in self.signature if one.kind is not ArgumentKind.TENSOR_MAP)
        return {
            "signature": self.signature,
            "parameters": self.exported.in_host_code(names),
            "addresses": [one.name for one in addresses],
            "too_narrow": " || ".join(f"{ld} < {least}" for ld, least in self._columns.items()),
            "call": self._call(),
            "call_of_sizes": self._call(self._columns | self._nowhere() | self._packed()),
            "call_without_addresses": self._call(self._nowhere()),
            "batched": self._batched,
            "grouped": self._grouped,
            "masked": self._masked,
            "divides_k": self._divides_k,
            "rows_array": COUNTS if self._masked else OFFSETS,
            "stacked": self._batched or self._grouped,
            "rows_b": self._rows["B"],
            "overlapping": self._overlapping(),
            "has_exact_sums": self._dtype.has_exact_sums,
            "alignment": ALIGNMENT_BYTES,
            "extras": self.extras(names),
            "preconditions": self.preconditions(),
            "vectors": self.vectors(),
            "launches": self.launches(),
            "launch_quantities": self.quantities(*self._launch_expressions()),
            "tensor_maps": [self._tensor_map(rule) for rule in self._map_rules()],
            "workspace_quantities": self.quantities(self._family.workspace_bytes),
            "workspace_bytes": self.workspace_bytes(),
        }

    def _call(self, values: Mapping[str, str] | None = None) -> str:
        """The initialisers of a `Call`: sizes, leading dimensions, matrices."""
        kinds = (
            *(ArgumentKind.SIZE, ArgumentKind.LEADING_DIMENSION, ArgumentKind.BATCH),
            *(ArgumentKind.GROUPS, ArgumentKind.MATRIX),
        )
        fields = [argument.name for kind in kinds for argument in self.exported.of_kind(kind)]
        # The decision is the same wherever the rows of groups begin.
        fields = [name for name in fields if name not in (OFFSETS, COUNTS)]
        return ", ".join((values or {}).get(name, name) for name in fields)

    def _packed(self) -> dict[str, str]:
        return {f"batch_rows_{name.lower()}": rows for name, rows in self._rows.items()}

    def _nowhere(self) -> dict[str, str]:
        return {one.name: "nullptr" for one in self.exported.of_kind(ArgumentKind.MATRIX)}

    def extras(self, names: CNames) -> list[dict[str, object]]:
        """The family's own arguments: name, meaning, C++ type, number of elements and its
        expression (none for one value), the neutral value or the input of the epilogue, and whether
        it belongs to the epilogue.
        """
        return [
            {
                "name": rule.name,
                "doc": rule.doc,
                "type": names[rule.type],
                "elements": "" if rule.extent is None else self._c_text(rule.extent),
                "quantities": [] if rule.extent is None else self.quantities(rule.extent),
                "neutral": float_literal(rule.neutral),
                "is_input": rule.is_input,
                "is_output": rule.is_output,
                "is_given": rule.is_input or rule.is_output,
            }
            for rule in self._arguments
        ]

    def workspace_bytes(self) -> str:
        """The bytes that the kernels need, 0 where they take no workspace.

        Raises ExportError where they depend on leading dimensions, which a caller that asks for
        the bytes does not give.
        """
        expression = self._family.workspace_bytes
        texts = [self._c_text(expression), *(text for _, text in self.quantities(expression))]
        if read := sorted(self._columns.keys() & _names(" ".join(texts))):
            raise ExportError(
                f"{expression.origin}: a caller asks for the workspace by M, N and K: it cannot "
                f"depend on {' '.join(read)}"
            )
        return texts[0]

    def _c_texts(self, extents: tuple[Expression, ...]) -> str:
        """x, y and z; extents that are not given are 1."""
        return ", ".join([*map(self._c_text, extents), "1", "1"][:3])

    def _launch_expressions(self) -> list[Expression]:
        """All expressions of the launches and their tensor maps."""
        found: list[Expression] = []
        for launch in self._rules():
            found += [*launch.grid, *launch.threads, launch.smem_bytes]
        for one in self._map_rules():
            found += [*one.extent, one.ld, *one.box, one.offset_bytes]
        return found

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
        return self._held.c_text(expression)


def _columns_of_product(problem: Problem) -> str:
    return "N" if problem.epilogue.num_columns == 1 else "2 * N"


def _names(c_text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", c_text)


def float_literal(value: float) -> str:
    """``1.0f``; nine digits tell all FP32 values apart. Raises ExportError for nan and inf."""
    if not math.isfinite(value):
        raise ExportError(f"alpha and beta must be finite numbers to be exported, got {value}")
    text = f"{value:.9g}"
    return f"{text}f" if re.search(r"[.e]", text) else f"{text}.0f"
