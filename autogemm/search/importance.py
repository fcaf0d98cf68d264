"""How much each parameter decides whether a config is among the fastest."""

import math
import warnings
from collections.abc import Sequence

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import create_trial

from autogemm.model.config import Config, Value

# The fastest tenth must hold a few configs, or the answer is noise.
LEAST_CONFIGS = 50
# A larger number is sampled, evenly over the ranks: Optuna is slow to take trials in.
MOST_CONFIGS = 2000


def parameter_importance(tried: Sequence[tuple[Config, float]]) -> dict[str, float]:
    """Shares that add up to 1, the largest first, of what sets the fastest tenth apart.

    ``tried`` are configs of one family, each with what is minimised. Parameters that never varied
    are left out; empty for fewer than LEAST_CONFIGS configs. PED-ANOVA (Watanabe et al., IJCAI
    2023) compares the values in the fastest tenth with those that were tried, so that it does not
    matter where the search spent its trials.
    """
    seen: dict[str, dict[Value, None]] = {}
    for config, _ in tried:
        for name, value in config:
            seen.setdefault(name, {})[value] = None
    distributions = {
        name: CategoricalDistribution(sorted(values, key=str))
        for name, values in seen.items()
        if len(values) > 1
    }
    if len(tried) < LEAST_CONFIGS or not distributions:
        return {}
    ranked = sorted(tried, key=lambda pair: pair[1])
    sample = ranked[:: -(-len(ranked) // MOST_CONFIGS)]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    study.add_trials(
        [
            create_trial(
                params={name: config[name] for name in distributions},
                distributions=dict(distributions),
                value=cost,
            )
            for config, cost in sample
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        shares = optuna.importance.get_param_importances(
            study, evaluator=PedAnovaImportanceEvaluator()
        )
    return {name: share for name, share in shares.items() if math.isfinite(share)}
