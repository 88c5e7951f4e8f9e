"""Records of results: what a command left in its folder, as a JSON file in docs/results/.

    python docs/record.py study results/study

A record is a table and where it comes from: command, date, commit, versions, CPU. `figures.py`
writes it into the pages.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"

#: Of the families of a study.
_KEPT = (
    "accuracy_after_close",
    "long_accuracy_after_close",
    "accuracy",
    "long_accuracy",
)
#: Of claims: what was measured, from which verdicts are read; and what they were, by which rule.
_OF_CLAIMS = (
    *("name", "value", "low", "high", "n_seeds", "unit", "correlation", "detectable"),
    *("beside", "positive", "negative", "reading", "rule", "verdict"),
)


def record_study(folder: Path) -> dict[str, Any]:
    """What `tl-dyck study` left."""
    from tl_dyck.studies import findings, load_study
    from tl_dyck.tasks import load_task

    done = load_study(folder)
    rows = []
    for family, facts in done.summary["families"].items():
        decided = done.languages[done.languages["family"] == family]
        last = done.variation[done.variation["family"] == family].iloc[-1]
        rows.append(
            {
                "family": family,
                **{name: facts[name] for name in _KEPT},
                "proved_lengths": decided["proved_to"].astype(int).tolist(),
                "variation": {"mean": last["variation"], "low": last["low"], "high": last["high"]},
                "recalled": None if last["recalled"] != last["recalled"] else last["recalled"],
                "random": last["random_baseline"],
            }
        )
    lengths = "–".join(map(str, load_task(done.config.task).long_lengths))
    said = [f"{finding.title}. {finding.text}" for finding in findings(done)]
    return {
        **_origin("tl-dyck study", folder / "results.json", done.summary["environment"]),
        "n_seeds": len(done.config.seeds),
        "lengths": lengths,
        "chance": {
            "training": asdict(done.task.closing_chance()),
            "long": asdict(done.task.closing_chance(long=True)),
        },
        "rows": rows,
        "findings": said,
    }


def record_claims(folder: Path) -> dict[str, Any]:
    """What `tl-dyck reproduce` left."""
    from tl_dyck.records import finite_rows
    from tl_dyck.studies.reproduction import load_reproduction

    done = load_reproduction(folder)
    return {
        **_origin(done.command, folder / "claims.json", done.environment),
        "paper": done.paper.name,
        "rows": finite_rows(done.claims[list(_OF_CLAIMS)].to_dict("records")),
    }


def record_stack_use(folder: Path) -> dict[str, Any]:
    """What `tl-dyck reproduce --paper stack-use-2026` left."""
    from tl_dyck.studies.reproduction import load_reproduction

    done = load_reproduction(folder)
    said = []
    for site, place in (("middle", "before the last layer"), ("end", "at the end")):
        groups = []
        for group in done.evidence.models["group"].unique():
            counts = Counter(done.evidence.of(group)[f"reading_{site}"])
            each = ", ".join(f"{reading} {n}" for reading, n in counts.most_common())
            groups.append(f"`{group}` {each}")
        said.append(
            f"What the three ablations say of the probe's direction {place}, in numbers of seeds: "
            f"{'; '.join(groups)}."
        )
    return {**record_claims(folder), "readings": said}


def record_contrast(folder: Path) -> dict[str, Any]:
    """What `demos/contrast_and_certify.py` left."""
    from tl_dyck.studies import load_study

    found = {
        float(path.name.partition("-")[2]): load_study(path) for path in folder.glob("weight-*")
    }
    rows = []
    for weight, done in sorted(found.items()):
        (facts,) = done.summary["families"].values()
        measures = {
            name: facts[name] for name in ("logit_change", "balance_violation", "long_accuracy")
        }
        rows.append(
            {"weight": weight, **measures, "certified_share": facts["certified_share"]["mean"]}
        )
    weights = " ".join(f"{weight:g}" for weight in sorted(found))
    last = max(found.values(), key=lambda done: (done.folder / "results.json").stat().st_mtime)
    command = f"python demos/contrast_and_certify.py --weights {weights}"
    return {
        **_origin(command, last.folder / "results.json", last.summary["environment"]),
        "rows": rows,
    }


def record_proved(folder: Path) -> dict[str, Any]:
    """What `demos/trained_and_proved.py` left for a family."""
    from tl_dyck.studies import load_study

    rows = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    environment = load_study(folder / "0").summary["environment"]
    command = f"python demos/trained_and_proved.py --family {folder.name} --seeds {rows[0]['n']}"
    return {**_origin(command, folder / "rows.json", environment), "rows": rows}


def record_text(folder: Path) -> dict[str, Any]:
    """What `tl-dyck text table` left."""
    import pandas as pd

    means = pd.read_csv(folder / "summary.csv")
    question = json.loads((folder / "question.json").read_text(encoding="utf-8"))
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    rows = []
    for (k, objective), group in means.groupby(["k", "objective"], sort=False):
        spaces = {row["space"]: _estimate(row, "certified") for row in group.to_dict("records")}
        first = group.to_dict("records")[0]
        rows.append(
            {
                "k": int(k),
                "objective": objective,
                "steps": first["steps"],
                "clean": _estimate(first, "clean"),
            }
        )
        rows[-1]["certified"] = spaces
    limit = question["training"]["seconds"]
    length = f"--steps {question['training']['steps']}" if limit is None else f"--seconds {limit:g}"
    return {
        **_origin(
            f"tl-dyck text table --data DIR --synonyms FILE {length}",
            folder / "summary.csv",
            environment,
        ),
        "spaces": list(question["spaces"]),
        "enumerated": int(means["enumerated"].sum()),
        "disagreements": int(means["disagreements"].sum()),
        "rows": rows,
    }


def record_judge(folder: Path) -> dict[str, Any]:
    """What `tl-dyck judge` left; methods that were not asked again stay as they were recorded.

    Raises:
        ValueError: there are such, and they were asked about other cases.
    """
    import pandas as pd

    from tl_dyck.judge import CONTROLS, KINDS, WITHDRAWN
    from tl_dyck.judge.run import in_order, load_judgement

    done = load_judgement(folder)
    cases, facts = done.sizes
    asked = {"suite": done.suite, "cases": cases, "facts": facts}
    origin = _origin("tl-dyck judge", folder / "scores.json", done.environment)
    rows = {name: {**row, "origin": row.get("origin", old)} for name, row, old in _kept(asked)}
    for method in done.order():
        scores = done.scores.loc[method]
        known = scores[scores["auroc"].notna()]
        shown = [
            name for name in known if name.startswith(("auroc", "accuracy", "false", "misses"))
        ]
        rows[method] = {
            "method": method,
            "scores": {
                kind: {name: round(float(row[name]), 4) for name in shown}
                for kind, row in known[shown].iterrows()
                if row.notna().all()
            },
            "seconds": round(float(scores["seconds"].iloc[0]), 4),
        }
    every = {name: row["scores"] for name, row in rows.items()}
    wide = pd.DataFrame(
        {name: {kind: of[kind]["auroc"] for kind in of} for name, of in every.items()}
    ).T
    return {
        **origin,
        **asked,
        "questions": [kind for kind in KINDS if kind in wide],
        "withdrawn": {kind: why for kind, why in WITHDRAWN.items() if kind in wide},
        "controls": [name for name in CONTROLS if name in rows],
        "rows": [rows[name] for name in in_order(wide)],
    }


def _kept(asked: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Methods that are recorded, their rows, and where the record comes from.

    Args:
        asked: what they must have been asked about.
    """
    path = RESULTS / "judge.json"
    if not path.exists():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    recorded = {name: record[name] for name in asked}
    if recorded != asked:
        raise ValueError(
            f"this is of {asked}, but {str(path)!r} of {recorded}; "
            "ask all methods again, without that file, or these with the oracle among them"
        )
    names = ("command", "date", "commit", "versions", "python", "cpu", "cpu_cores")
    old = {name: record[name] for name in names}
    return [(row["method"], row, old) for row in record["rows"]]


def record_performance(folder: Path) -> dict[str, Any]:
    """What `make bench` left; benchmarks that were not run again stay as they were recorded."""
    from tl_dyck.environment import environment

    path, facts = RESULTS / "performance.json", environment()
    kept = json.loads(path.read_text(encoding="utf-8"))["scripts"] if path.exists() else []
    scripts = {script["name"]: script for script in kept}
    found = sorted(folder.glob("bench_*.txt"))
    if not found:
        raise ValueError(f"there are no files bench_*.txt in {str(folder)!r}; run make bench first")
    for file in found:
        source = (ROOT / "benchmarks" / f"{file.stem}.py").read_text(encoding="utf-8")
        about = source.partition('"""')[2].partition("\n\n")[0].partition('"""')[0]
        output = re.sub(r"\x1b\[[0-9;]*m", "", file.read_text(encoding="utf-8")).strip()
        origin = _origin(f"python benchmarks/{file.stem}.py", file, facts)
        scripts[f"{file.stem}.py"] = {
            "name": f"{file.stem}.py",
            "about": about,
            "output": output,
            **origin,
        }
    last = max(found, key=lambda file: file.stat().st_mtime)
    return {
        **_origin("make bench", last, facts),
        "scripts": [scripts[name] for name in sorted(scripts)],
    }


RECORDERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "study": record_study,
    "claims": record_claims,
    "stack_use": record_stack_use,
    "contrast": record_contrast,
    "proved": record_proved,
    "text": record_text,
    "judge": record_judge,
    "performance": record_performance,
}


def _estimate(row: dict[str, Any], name: str) -> dict[str, float]:
    return {"mean": row[name], "low": row[f"{name}_low"], "high": row[f"{name}_high"]}


def _origin(command: str, file: Path, environment: dict[str, Any]) -> dict[str, Any]:
    """Where a record comes from.

    Args:
        command: that made the results.
        file: written at its end.
        environment: of the run, see `tl_dyck.environment.environment`.
    """
    if not environment.get("cpu"):
        raise ValueError(
            f"{str(file)!r} does not name the CPU: an older version wrote it; run it again"
        )
    made = datetime.fromtimestamp(file.stat().st_mtime, tz=timezone.utc).date()
    facts = {name: environment[name] for name in ("versions", "python", "cpu", "cpu_cores")}
    return {"command": command, "date": date.isoformat(made), "commit": _commit(), **facts}


def _commit() -> str:
    """The commit of the library, marked if the library has been changed since."""

    def git(*arguments: str) -> str:
        run = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    changed = git("status", "--porcelain", "--", "tl_dyck", "hooks")
    return git("rev-parse", "--short=7", "HEAD") + ("+changes" if changed else "")


def written(record: dict[str, Any]) -> str:
    """A record as JSON, a line for each of its rows."""

    def dump(value: Any, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, **how)

    rows = ",\n".join(f"  {dump(row)}" for row in record.get("rows", ()))
    whole = dump({**record, "rows": []} if rows else record, indent=1)
    return whole.replace('"rows": []', f'"rows": [\n{rows}\n ]') + "\n"


def main() -> None:
    """Make a record."""
    parser = argparse.ArgumentParser(
        description="Record what a command left, in docs/results/; then: make readme-figures"
    )
    parser.add_argument("table", choices=RECORDERS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--command", help="that made the folder, if it was not the usual one")
    options = parser.parse_args()
    record = RECORDERS[options.table](options.folder)
    record["command"] = options.command or record["command"]
    path = RESULTS / f"{options.table}.json"
    path.write_text(written(record), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
