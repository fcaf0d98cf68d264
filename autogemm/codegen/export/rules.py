"""Rules that pick a kernel by M, N and K, as C++."""

import math
from collections.abc import Sequence

from autogemm.model.config import Config
from autogemm.model.rule import Extents, Leaf, Modelled, Nearest, Rule, Split, TimeModel, Tree
from autogemm.support.templating import environment


def rule_text(rule: Rule, configs: Sequence[Config], counted: str = "") -> str:
    """The body of a C++ function of M, N and K that returns the config's number.

    ``counted`` names the number of products or groups, which the nearest size reads as well.
    """
    context: dict[str, object]
    match rule:
        case Nearest(sizes, of_size):
            points = [_point(*pair) for pair in zip(sizes, of_size, strict=True)]
            context = {"kind": "nearest", "points": points}
        case Modelled(models, of_model):
            pairs = zip(models, of_model, strict=True)
            rows = [_model(model, number, configs[number]) for model, number in pairs]
            context = {"kind": "models", "models": rows}
        case Tree(root):
            context = {"kind": "tree", "root": _node(root, configs)}
    return environment().get_template("library/rule.cu.jinja").render(context, counted=counted)


def _point(size: Extents, number: int) -> dict[str, object]:
    logs = ", ".join(f"{math.log2(extent):.9g}" for extent in size)
    return {"logs": logs, "kernel": number, "label": "x".join(map(str, size))}


def _model(model: TimeModel, number: int, config: Config) -> dict[str, object]:
    shape = (model.bm, model.bn, model.bk, model.parts, model.per_wave)
    fitted = (model.launch_us, model.depth_us, model.work_us)
    return {
        "numbers": ", ".join(
            [*map(str, shape), str(model.is_even).lower(), *(f"{value:.5g}" for value in fitted)]
        ),
        "kernel": number,
        "label": f"{config.family}, within {100 * model.error:.0f} %",
    }


def _node(node: Split | Leaf, configs: Sequence[Config]) -> dict[str, object]:
    if isinstance(node, Leaf):
        config = configs[node.kernel]
        values = " ".join(f"{name}={value}" for name, value in list(config)[:3])
        return {"kernel": node.kernel, "label": f"{config.family} {values}"}
    return {
        "feature": node.feature,
        "threshold": node.threshold,
        "below": _node(node.below, configs),
        "above": _node(node.above, configs),
    }
