"""The shipped families with no values but those of their seeds: spaces that are built in a moment.

    python benchmarks/narrow_families.py FOLDER

Writes FOLDER/NAME/NAME.yaml, its seeds and its template for each, for
`autogemm tune --family FOLDER/NAME`. Their configs and kernels are configs and kernels of the
shipped families.
"""

import re
import shutil
import sys
from pathlib import Path

from autogemm.space import default_families, load_family, seeds_path


def main() -> None:
    for family in default_families():
        folder = Path(sys.argv[1]) / family.name
        folder.mkdir(parents=True, exist_ok=True)
        text = family.yaml_path.read_text()
        for parameter in family.parameters:
            used = {seed[parameter.name] for seed in family.seeds}
            listed = [value for value in parameter.values if value in used]
            # Values that follow from the GPU are numbers in seeds.
            listed += sorted(used.difference(listed))
            values = ", ".join(map(str, listed))
            pattern = rf"^(  {parameter.name}: {{values: )\[[^\]]*\]"
            text, count = re.subn(pattern, rf"\g<1>[{values}]", text, flags=re.M)
            assert count == 1, parameter.name
        (folder / f"{family.name}.yaml").write_text(text)
        if (seeds := seeds_path(family.yaml_path)).is_file():
            (folder / "seeds").mkdir(exist_ok=True)
            shutil.copy(seeds, folder / "seeds")
        assert family.template_path is not None
        (folder / f"{family.name}.cu.jinja").write_text(family.template_path.read_text())
        load_family(folder)


if __name__ == "__main__":
    main()
