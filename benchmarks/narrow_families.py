"""Families with fewer values a parameter, for sweeps whose spaces must be built in a moment.

    python benchmarks/narrow_families.py FOLDER

Writes FOLDER/sgemm_simt and FOLDER/sgemm_skinny for `autogemm tune --family`. The values left are
those of seeds and winners; configs and kernels are the same as the shipped families'.
"""

import re
import sys
from pathlib import Path

from autogemm.space import load_family

KEPT = {
    "sgemm_simt": {
        "SLICE_K": "[1, 2, 4]",
        "SPLIT_K": "[1, 2, 4, 8, 16, 32]",
        "STREAM_BLOCKS": "[0, 132, 264, 528]",
        "HANDOVER": "[2, 5]",
        "FMA_ORDER": "[snake]",
        "PACK": "[0]",
        "TM": "[4, 8, 12, 16]",
        "TN": "[4, 8, 12]",
        "STAGES": "[2, 3, 4, 5]",
    },
    "sgemm_skinny": {},
}


def main() -> None:
    for name, kept in KEPT.items():
        family = load_family(name)
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        text = family.yaml_path.read_text()
        for parameter, values in kept.items():
            text, count = re.subn(
                rf"^(  {parameter}: {{values: )\[[^\]]*\]", rf"\g<1>{values}", text, flags=re.M
            )
            assert count == 1, parameter
        (folder / f"{name}.yaml").write_text(text)
        assert family.template_path is not None
        (folder / f"{name}.cu.jinja").write_text(family.template_path.read_text())
        load_family(folder)


if __name__ == "__main__":
    main()
