"""A T1 search space as other tuners write them: a GEMM's, with what cannot be said here."""

import json
from pathlib import Path
from typing import Any


def t1_content() -> dict[str, Any]:
    """Tiles of 16 to 64, threads that must divide them, one way or another."""
    parameters = [
        ("MWG", "int", "[16, 32, 64]", 32),
        ("NWG", "uint", "(16, 32)", 32),
        ("KWG", "int", "list(range(8, 33, 8))", 16),
        ("MDIMC", "int", "[8, 16]", 8),
        ("NDIMC", "int", "8, 16", 8),
        ("MDIMA", "int", "[8, 16]", 8),
        ("USE", "bool", "[True, False]", True),
        ("MODE", "string", "['fast', \"safe\"]", "fast"),
        ("SCALE", "float", "[0.5, 1.5]", 0.5),
    ]
    conditions = [
        "MWG % MDIMC == 0",
        "(NWG // NDIMC) * NDIMC == NWG",
        "KWG % ((MDIMC * NDIMC)/MDIMA) == 0",
        "not (MWG == 64 and NDIMC == 16) and MODE in ['fast', 'safe']",
        "USE == True or KWG >= 16",
        "MWG / KWG > 1",
        "SCALE * 2 > 1",
        "MWG * max_things < 1000",
        "__import__('os').system('true') == 0",
    ]
    return {
        "General": {"BenchmarkName": "gemm"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": name, "Type": kind, "Values": values, "Default": default}
                for name, kind, values, default in parameters
            ],
            "Conditions": [{"Expression": text, "Parameters": []} for text in conditions],
        },
        "Search": {"Name": "Random"},
        "Budget": [{"Type": "ConfigurationCount", "BudgetValue": 100}],
        "KernelSpecification": {
            "Language": "OpenCL",
            "KernelName": "Xgemm",
            "KernelFile": "gemm.cl",
            "CompilerOptions": [],
            "GlobalSize": {"X": "4096"},
            "LocalSize": {"X": "block_size_x"},
            "Misc": {"jitify": True},
        },
    }


def write_t1(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps(t1_content() | changes, indent=1))
    return path
