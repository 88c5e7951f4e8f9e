"""The tables of results in the documentation: each stands between two markers.

    python docs/tables.py study results/study --command "tl-dyck study"

puts ``table.md``, which a command or a demo left in its folder, into the page that has its markers,
with where it comes from. Claims and the judgement are kept as records in docs/results/ instead, for
claims are judged again by the rules as they are, and methods can be asked one by one:

    python docs/tables.py claims results/reproduce
    python docs/tables.py          # writes the tables of all records into the pages
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import subprocess
from collections.abc import Callable
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: What holds tables.
PAGES = sorted((ROOT / "docs" / "findings").glob("*.md"))
RESULTS = ROOT / "docs" / "results"
#: What a record says about where it comes from.
PROVENANCE = ("command", "date", "commit", "versions", "python", "cpu", "cpu_cores")
#: What the suite "parts" asks.
_OF_PARTS = ("edge", "depth", "feature")
#: Rows of every judgement, which no command names.
_OF_ALL = ("oracle", "kind-constant", "forest", "forest-other-kinds")
_SHOWN = ("tl-dyck", "torch", "transformer_lens")
#: Of claims: what was measured, from which verdicts are read; and what they were, by which rule.
_OF_CLAIMS = (
    *("name", "value", "low", "high", "interval", "level", "n_seeds"),
    *("unit", "correlation", "detectable"),
    *("beside", "positive", "negative", "reading", "rule", "verdict"),
)

Record = dict[str, Any]


# --- claims ---------------------------------------------------------------------------------------


def record_claims(folder: Path) -> Record:
    """What `tl-dyck reproduce` left."""
    from tl_dyck.kit.records import finite_rows
    from tl_dyck.studies.reproduction import load_reproduction

    done = load_reproduction(folder)
    return {
        **_origin(done.command, folder / "claims.json", done.environment),
        "paper": done.paper.name,
        "readings": getattr(done.evidence, "said", list)(),
        "rows": finite_rows(done.claims[list(_OF_CLAIMS)].to_dict("records")),
    }


def claims(record: Record) -> str:
    """A row per claim: what was measured as it is recorded, its verdict by the rules as they are.

    How far from its limit a value would have been seen stays as it was recorded.
    """
    import pandas as pd

    from tl_dyck.report.paper import claims_markdown
    from tl_dyck.studies.claims import read_again, tally
    from tl_dyck.studies.reproduction import load_paper

    table = pd.DataFrame(record["rows"])
    again = read_again(load_paper(record["paper"]).claims, table)
    before = table.set_index("name").loc[again["name"]]
    again["detectable"] = before["detectable"].to_numpy(float)
    again["recorded"] = before["verdict"].tolist()
    said = [f"{tally(again)}.", *record.get("readings", ()), provenance(record)]
    return f"{claims_markdown(again)}\n{' '.join(said)}"


# --- the judgement --------------------------------------------------------------------------------


def record_judge(folder: Path) -> Record:
    """What `tl-dyck judge` left; methods that were not asked again stay as they were recorded.

    Raises:
        ValueError: there are such, and they were asked about other cases.
    """
    import pandas as pd

    from tl_dyck.judge.protocol import COLUMNS
    from tl_dyck.judge.run import in_order, load_judgement

    done = load_judgement(folder)
    cases, facts = done.sizes
    asked = {"suite": done.suite, "cases": cases, "facts": facts, "digest": done.digest}
    asked["apart"] = True  # trained and built models
    origin = _origin("tl-dyck judge", folder / "scores.json", done.environment)
    rows = {name: {**row, "origin": row.get("origin", old)} for name, row, old in _kept(asked)}
    for method in done.order():
        scores = done.scores.loc[method]
        known = scores[scores["auroc"].notna()]
        shown = [
            name
            for name in known
            if name.startswith(("auroc", "accuracy", "false", "misses", "off", "answered"))
        ]
        rows[method] = {
            "method": method,
            "scores": {
                kind: {name: round(float(row[name]), 4) for name in shown if row.notna()[name]}
                for kind, row in known[shown].iterrows()
                if row.filter(regex="^(?!off)").notna().all()
            },
            "error": None if scores["error"].isna().all() else round(scores["error"].max(), 4),
            **{
                name: round(float(scores[name].iloc[0]), 4)  # of a case, all questions together
                for name in ("seconds", "passes", "backward")
            },
        }
    learners, words = _attack(folder, done.digest)
    rows["attack"] = {"method": "attack", "scores": learners, "error": None, "seconds": 0.0}
    every = {name: row["scores"] for name, row in rows.items()}
    wide = pd.DataFrame(
        {name: {kind: of[kind]["auroc"] for kind in of} for name, of in every.items()}
    ).T
    return {
        **origin,
        **asked,
        "questions": [column for column in COLUMNS if column in wide],
        "unasked": done.undecided_note(),
        "attack": words,
        "rows": [rows[name] for name in in_order(wide)],
    }


def _attack(
    folder: Path, digest: str, withdrawn: dict[str, str] | None = None
) -> tuple[dict[str, Record], str]:
    """What learners have of a suite that see all but what models do, by column; and who they are.

    Args:
        folder: of a judgement.
        digest: of its answers.
        withdrawn: gets the columns that give too much away, and why, in place of an error.

    Raises:
        ValueError: it was not attacked, or is of other answers, or gives too much away.
    """
    from tl_dyck.judge.cheats import broken

    file, again = folder / "attack.json", f"python -m tests.judge.attack {folder}"
    if not file.exists():
        raise ValueError(f"{str(folder)!r} was not attacked: {again}")
    found = json.loads(file.read_text(encoding="utf-8"))
    if found["digest"] != digest:
        raise ValueError(f"{str(file)!r} is of other answers, {found['digest']}: {again}")
    rows = {row["question"]: row for row in found["rows"]}
    for column, row in rows.items():
        if (said := broken(row)) is not None:
            why = f"{row['by']} has {_cell(row, 'auroc')} of {column!r}, and {said}"
            if withdrawn is None:
                raise ValueError(f"{why}: the suite gives its answers away")
            withdrawn[column] = why
    tried = max(row["tried"] for row in rows.values())
    said = ", ".join(f"{column}: {row['by']}" for column, row in rows.items())
    names = ("auroc", "auroc_low", "auroc_high")
    scores = {column: {name: round(row[name], 4) for name in names} for column, row in rows.items()}
    return scores, f"“attack”: the best of {tried} learners and views ({said})."


def record_attack(folder: Path) -> Record:
    """What `python -m tests.judge.attack` left in the folder of a judgement."""
    from tl_dyck.judge.run import load_judgement

    done, file = load_judgement(folder), folder / "attack.json"
    _attack(folder, done.digest)
    found = json.loads(file.read_text(encoding="utf-8"))
    origin = _origin(f"python -m tests.judge.attack {folder}", file, done.environment)
    said = f"{found['suite']}, digest {found['digest']}, asked of who learnt as many other cases."
    return {**origin, "said": said, "rows": found["rows"]}


def attack(record: Record) -> str:
    """A row per column: what the best of all learners has, and who that is."""
    from tl_dyck.studies.tables import markdown

    rows = [
        [row["question"], _cell(row, "auroc"), row["by"], str(row["n"]), str(row["cases"])]
        for row in record["rows"]
    ]
    columns = ["question", "AUROC", "best of all", "questions", "cases"]
    return f"{markdown(columns, rows)}\n{record['said']} {provenance(record)}"


def _kept(asked: Record) -> list[tuple[str, Record, Record]]:
    """Methods that were recorded of what was asked, their rows, and where the record comes from."""
    if not (RESULTS / "judge.json").exists():
        return []
    record = read("judge")
    recorded = {name: record.get(name) for name in asked}
    if recorded != asked:
        raise ValueError(
            f"this is of {asked}, but docs/results/judge.json of {recorded}; "
            "ask all methods again, without that file, or these with the oracle among them"
        )
    old = {name: record[name] for name in PROVENANCE}
    return [(row["method"], row, old) for row in record["rows"]]


def judge(record: Record) -> str:
    """A row per method, a column per kind of question; then how far sizes are off."""
    from tl_dyck.estimates import Estimate
    from tl_dyck.studies.tables import markdown

    kinds = record["questions"]
    every = {row["method"]: row["scores"] for row in record["rows"]}
    seconds = {row["method"]: f"{row['seconds']:.2f}" for row in record["rows"]}
    errors = {row["method"]: row.get("error") for row in record["rows"]}
    errors = {name: "" if error is None else f"{error:.1%}" for name, error in errors.items()}

    def cells(what: str, kinds: list[str]) -> dict[str, list[str]]:
        """Of the methods that have any."""
        found = {
            name: [_cell(of.get(kind, {}), what) for kind in kinds] for name, of in every.items()
        }
        return {name: row for name, row in found.items() if any(row)}

    scores, sized = (
        cells("auroc", kinds),
        [k for k in kinds if any("off" in of.get(k, {}) for of in every.values())],
    )
    heads = ["error", "s a case"]
    rows = [[name, *row, errors[name], seconds[name]] for name, row in scores.items()]
    # recorded since passes are counted; of others they are not known
    if passes := {
        row["method"]: f"{row['passes']:.1f}, {row['backward']:.1f}"
        for row in record["rows"]
        if "passes" in row
    }:
        heads.append("passes, back")
        rows = [[*row, passes.get(row[0], "")] for row in rows]
    sizes = [[name, *row] for name, row in cells("off", sized).items()]
    hidden = [name for name in every if name not in scores]
    interval = Estimate(value=0, low=0, high=0, n=0, kind="bootstrap").words("cases")
    text = (
        f"AUROC [{interval}], 0.5 is chance; blank: not asked. "
        "“of 40%”: to so many of the questions there is an answer; numbers further than 1 % from "
        "converged are none, and “error” is the largest of the others. “Off by”: "
        f"Σ |said − true| / Σ true effect of what is asked, where a method says how large it is. "
        f"{record['suite']}: {record['cases']:,} cases, {record['facts']:,} questions. "
        f"Digest of what is true: {record['digest']}. {record['unasked']}"
    )
    text += f" {record['attack']}" if "attack" in record else ""
    if hidden:
        text += f" Asked nothing else, and so not shown: {', '.join(hidden)}."
    tables = (
        markdown(["method", *kinds, *heads], rows),
        markdown(["off by", *sized], sizes),
    )
    return "\n".join([*tables, f"{text} {provenance(record)}"])


def _cell(row: Any, what: str) -> str:
    """A mean with its interval; nothing if there is none."""
    from tl_dyck.report.judge import share_said

    if row.get(what) is None or row[what] != row[what]:
        return ""
    form = ".0%" if what == "off" else ".2f"
    share = share_said(row) if what == "auroc" else ""
    return f"{row[what]:{form}} [{row[f'{what}_low']:{form}}, {row[f'{what}_high']:{form}}]{share}"


#: What is kept as a record: how it is read from a folder, and shown.
RECORDS: dict[str, tuple[Callable[[Path], Record], Callable[[Record], str]]] = {
    "claims": (record_claims, claims),
    "stack_use": (record_claims, claims),
    "judge": (record_judge, judge),
    "attack": (record_attack, attack),
}


def methods() -> str:
    """A row per method of ours, as it declares itself; packages' have a section of their own."""
    from tl_dyck.judge import methods, table_of_methods

    rows = ["| method | asked about | says yes | after |", "|---|---|---|---|"]
    for name, row in table_of_methods().iterrows():
        if ".packages." in methods.get(str(name)).__module__:
            continue
        rows.append(f"| {name} | {row['asked']} | {row['yes']} | {row['paper']} |")
    return "\n".join(rows)


# --- where it comes from --------------------------------------------------------------------------


def _origin(command: str, file: Path, environment: Record) -> Record:
    """Where a table comes from: what made it, which wrote a file at its end, and on what."""
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


def provenance(record: Record) -> str:
    """One line that says where a table comes from."""
    versions = record["versions"]
    packages = ", ".join(f"{name} {versions[name]}" for name in _SHOWN if name in versions)
    facts = [f"`{record['command']}`", record["date"], f"commit {record['commit']}"]
    facts += [f"{packages}, Python {record['python']}"]
    facts += [f"{record['cpu']}, {record['cpu_cores']} cores", *filter(None, [record.get("note")])]
    text = f"Recorded: {'; '.join(facts)}."
    origins: dict[str, list[str]] = {}  # of rows that are from another run
    for row in record.get("rows", ()):
        if "origin" in row:
            origins.setdefault(provenance(row["origin"]), []).append(row["method"])
    return " ".join([text, *(f"{', '.join(of)}: {origin}" for origin, of in origins.items())])


# --- pages ----------------------------------------------------------------------------------------


def read(name: str) -> Record:
    """One record."""
    record: Record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return record


def written(record: Record) -> str:
    """A record as JSON, a line for each of its rows."""

    def dump(value: Any, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, **how)

    rows = ",\n".join(f"  {dump(row)}" for row in record["rows"])
    whole = dump({**record, "rows": []}, indent=1)
    return whole.replace('"rows": []', f'"rows": [\n{rows}\n ]') + "\n"


def copied(folder: Path, command: str) -> str:
    """The table that was left in a folder, and where it comes from."""
    table = folder / "table.md"
    for file in (*sorted(folder.glob("*.json")), *sorted(folder.glob("*/results.json"))):
        saved = json.loads(file.read_text(encoding="utf-8"))
        found = saved.get("environment", saved) if isinstance(saved, dict) else {}
        if "cpu" in found:
            text = table.read_text(encoding="utf-8").strip()
            return f"{text}\n\n{provenance(_origin(command, table, found))}"
    raise ValueError(f"{str(folder)!r} does not say where its table was made")


def parts(folder: Path) -> str:
    """What ``tl-dyck judge --scale edges`` or ``parts`` left: AUROC, and how far sizes are off.

    A row for each method that answers about edges or features, a column for each kind of model.
    """
    from tl_dyck.judge.protocol import kind_of
    from tl_dyck.judge.run import in_order, load_judgement
    from tl_dyck.judge.scores import score_table
    from tl_dyck.studies.tables import markdown

    done, withdrawn = load_judgement(folder), dict[str, str]()
    learners, words = _attack(folder, done.digest, withdrawn)
    found = {
        kind: score_table(rows, asked=rows[rows["method"] == "oracle"])
        .reset_index("question")
        .query("question not in @withdrawn")
        .assign(question=lambda table: table["question"].map(kind_of))
        .query("question in @_OF_PARTS")
        for kind, rows in done.answers.groupby("model", sort=False)
    }

    def cell(kind: str, method: str, what: str) -> str:
        return _cell(found[kind].loc[method], what) if method in found[kind].index else ""

    tables = []
    for asked, what in ((["edge"], "auroc"), (["edge"], "off"), (["depth", "feature"], "auroc")):
        kinds = [kind for kind, rows in found.items() if {*rows["question"]} & {*asked}]
        if not kinds:
            continue
        wide = done.wide()
        wide = wide[[each for each in wide if kind_of(each) in asked and each not in withdrawn]]
        wide = wide.dropna(how="all")
        rows = [[name, *(cell(kind, name, what) for kind in kinds)] for name in in_order(wide)]
        heads = [f"{kind} ({int(found[kind]['n'].max())})" for kind in kinds]
        name = "off by" if what == "off" else f"AUROC, {' and '.join(asked)}"
        tables.append(markdown([name, *heads], [row for row in rows if any(row[1:])]))
    n_cases, n_facts = done.sizes
    said = f"{done.suite}: {n_cases} models, {n_facts} questions, as many yes as no. "
    said += f"Digest of what is true: {done.digest}."
    best = ", ".join(f"{column} {_cell(row, 'auroc')}" for column, row in learners.items())
    said += f" {words} {best}."
    said += "".join(f" Withdrawn: {why}." for why in withdrawn.values())
    scale = done.suite.rpartition("/")[2]
    origin = _origin(f"tl-dyck judge --scale {scale}", folder / "scores.json", done.environment)
    return "\n".join([*tables, f"{said} {provenance(origin)}"])


def tasks(folder: Path) -> str:
    """What ``tl-dyck judge --scale tasks`` left: AUROC by task, correlations, best learners.

    The command is recorded with the methods that were asked, and with the sizes of a part of the
    suite.
    """
    from tl_dyck.judge.run import load_judgement
    from tl_dyck.report.judge_tasks import tasks_markdown

    done = load_judgement(folder)
    n_cases, n_facts = done.sizes
    said = f"{done.suite}: {n_cases} models, {n_facts} questions. Digest of what is true: "
    said += f"{done.digest}. [ ]: 95 %, bootstrap over cases; ρ: Spearman, τ: Kendall, of so many "
    said += "methods; of halves the mean. Passes, back: how often all strings of a case are run, "
    said += "and gradients come back."
    found = done.true_answers.groupby("model")["case"].nunique()
    said += " Cases: " + ", ".join(f"{kind} {n}" for kind, n in found.items()) + "."
    _, *settings = done.suite.split(", ")
    asked = [name for name in done.order() if name not in _OF_ALL]
    command = "".join(f" --set {each}" for each in settings) + f" --methods {','.join(asked)}"
    command = f"tl-dyck judge --scale tasks{command}"
    origin = _origin(command, folder / "scores.json", done.environment)
    tables, file = tasks_markdown(done), folder / "attack.json"
    if not file.exists():
        return f"{tables}\n{said} Learners were not asked. {provenance(origin)}"
    _attack(folder, done.digest, too_good := {})
    found = json.loads(file.read_text(encoding="utf-8"))
    learnt = ", ".join(f"{kind} {n}" for kind, n in found["learnt"].items())
    text = f"Learners, asked of these cases, have learnt from others: {learnt}."
    text += "".join(f" Not kept: {why}." for why in too_good.values())
    beside = attack({**origin, "command": found["command"], "rows": found["rows"], "said": text})
    return f"{tables}\n{said} {provenance(origin)}\n\n{beside}"


def sentences(folder: Path) -> str:
    """A row per point of a sweep of sentences, a column per space."""
    from tl_dyck.runs import aggregate, load_results
    from tl_dyck.runs.results import load_runs
    from tl_dyck.studies.tables import markdown

    runs = load_results(folder)
    spaces = [name for name in runs if name.startswith("proved ")]
    asked = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["sweep"]
    by = list(asked["grid"])
    several = len(asked["seeds"]) > 1
    rows = []
    for point, group in aggregate(runs, ["steps", "clean", *spaces], by=by).groupby(by, sort=False):
        steps, *shares = group.to_dict("records")
        said = [f"{x['mean']:.1%}" for x in shares]
        if several:
            ends = (f" [{100 * x['low']:.1f}, {100 * x['high']:.1f}]" for x in shares)
            said = [mean + interval for mean, interval in zip(said, ends, strict=True)]
        rows.append([*map(str, point), f"{steps['mean']:,.0f}", *said])
    words = {"k": "synonyms", "training.objective": "training"}
    heads = [words.get(name, name.rpartition(".")[2]) for name in by]
    heads += ["steps made" if "steps" in heads else "steps", "clean", *spaces]
    kept = load_runs(folder)["folder"].iloc[-1] / "training.json"
    made = json.loads(kept.read_text(encoding="utf-8"))["environment"]
    origin = _origin("tl-dyck sweep sentences.yaml", kept, made)
    return f"{markdown(heads, rows)}\n{provenance(origin)}"


def benchmarks(folder: Path) -> str:
    """What `make bench` left; benchmarks that were not run again stay as they are in the page."""
    from tl_dyck.kit.environment import environment

    page = (ROOT / "docs" / "findings" / "performance.md").read_text(encoding="utf-8")
    found = re.findall(r"### `(bench_\w+)\.py`\n.*?(?=\n+### `|\n+<!-- /table)", page, re.DOTALL)
    parts = dict(zip(found, re.split(r"(?m)^(?=### `)", page)[1:], strict=True))
    parts = {name: part.partition("<!-- /table")[0].strip() for name, part in parts.items()}
    for file in sorted(folder.glob("bench_*.txt")):
        script = ROOT / "benchmarks" / f"{file.stem}.py"
        about = script.read_text(encoding="utf-8").partition('"""')[2]
        about = about.partition("\n\n")[0].partition('"""')[0]
        output = re.sub(r"\x1b\[[0-9;]*m", "", file.read_text(encoding="utf-8")).strip()
        origin = _origin(f"python benchmarks/{file.stem}.py", file, environment())
        if output not in parts.get(file.stem, ""):
            said = f"{about}\n\n```text\n{output}\n```\n\n{provenance(origin)}"
            parts[file.stem] = f"### `{file.stem}.py`\n\n{said}"
    return "\n\n".join(parts[name] for name in sorted(parts))


def placed(page: str, name: str, text: str) -> str:
    """A page with a text between the markers of a table."""
    between = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- /table -->)", re.DOTALL)
    return between.sub(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", page)


def main() -> None:
    """Write a table, or those of all records, into the pages."""
    parser = argparse.ArgumentParser(description="Write tables of results into the pages.")
    parser.add_argument("table", nargs="?", help="as its markers call it; none: all records")
    parser.add_argument("folder", nargs="?", type=Path, help="that a command left")
    parser.add_argument("--command", help="that made the folder, if that is not known")
    options = parser.parse_args()
    texts = {}
    if options.folder is not None and options.table not in RECORDS:
        special = {"performance": benchmarks, "edges": parts, "parts": parts, "tasks": tasks}
        special["packages"] = tasks
        special |= dict.fromkeys(("text", "choice", "chosen"), sentences)
        made = special.get(options.table, functools.partial(copied, command=options.command))
        texts[options.table] = made(options.folder)
    elif options.folder is not None:
        record = RECORDS[options.table][0](options.folder)
        record["command"] = options.command or record["command"]
        (RESULTS / f"{options.table}.json").write_text(written(record), encoding="utf-8")
    kept = [name for name in RECORDS if (RESULTS / f"{name}.json").exists()]
    texts |= {name: RECORDS[name][1](read(name)) for name in kept}
    texts["methods"] = methods()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name, table in texts.items():
            text = placed(text, name, table)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
