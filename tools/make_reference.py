"""The study whose models come with the package: tl_dyck/reference, of a study made here.

    tl-dyck study && python tools/make_reference.py results/study

Of the machine it keeps the CPU and the versions, and not its name and its kernel's.
"""

from __future__ import annotations

import argparse
import platform
import shutil
from pathlib import Path
from typing import Any

from tl_dyck.kit.addresses import REFERENCE_FOLDER
from tl_dyck.kit.files import read_json, write_bytes, write_json
from tl_dyck.kit.records import read_sealed, sealed
from tl_dyck.studies import load_study

#: What a study leaves that nothing reads back: its page, its table, its locks.
_LEFT_OUT = shutil.ignore_patterns("*.html", "*.md", "locks", "figures", "ablation")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("study", type=Path, help="folder of a study")
    source = parser.parse_args().study
    load_study(source)  # a whole one
    shutil.rmtree(REFERENCE_FOLDER, ignore_errors=True)
    shutil.copytree(source, REFERENCE_FOLDER, ignore=_LEFT_OUT)
    for path in REFERENCE_FOLDER.glob("runs/*/*.json"):
        write_bytes(path, sealed(_unnamed(read_sealed(path, path.stem)), path.stem))
    path = REFERENCE_FOLDER / "results.json"
    write_json(path, _unnamed(read_json(path)))
    print(f"{len(load_study(REFERENCE_FOLDER).models)} models in {REFERENCE_FOLDER}")


def _unnamed(record: dict[str, Any]) -> dict[str, Any]:
    facts = {**record["environment"], "platform": f"{platform.system()} {platform.machine()}"}
    facts.pop("host", None)
    return {**record, "environment": facts}


if __name__ == "__main__":
    main()
