"""A folder of a study's models with a card for each, ready to be put on the Hugging Face Hub."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tl_dyck.files import copy_file, ensure_folder, read_json, write_bytes, write_json
from tl_dyck.models import load_model
from tl_dyck.report.commands import study_command
from tl_dyck.report.markup import percent
from tl_dyck.report.shown import long_lengths
from tl_dyck.runs.pretrained import ZOO_FORMAT, check_name
from tl_dyck.studies import Study

_ADDRESS = "owner/name"
#: Column, what it is called on a card, and whether it is a share.
_SHOWN = (
    ("accuracy_after_close", "accuracy after a closing bracket", True),
    ("long_accuracy_after_close", "accuracy after a closing bracket at {lengths}", True),
    ("accuracy", "accuracy on all closing brackets", True),
    ("long_accuracy", "accuracy on all closing brackets at {lengths}", True),
    ("entropy_gap", "cross-entropy above the floor (nats per token)", False),
    ("balance_violation", "balance violation β", False),
)


def write_zoo(
    study: Study, folder: str | Path, *, licence: str = "mit", repository: str = _ADDRESS
) -> Path:
    """Write the models of a study as a folder that `load_pretrained` reads, with model cards.

    The folder has ``README.md`` (the card of all of them: Markdown with the Hub's YAML header),
    ``zoo.json`` (a list of the models, with digests and numbers), and for each model
    ``FAMILY/seed-N/`` with its weights, configuration and card. Nothing is uploaded.

    Args:
        study: whose models; every one is loaded once, so that no damaged one is passed on.
        folder: to be made; it must be empty or not be there.
        licence: of the weights, by the Hub's names ("mit", "apache-2.0", "cc-by-4.0").
        repository: where it will be put, for the examples on the cards.

    Returns:
        The folder.

    Raises:
        CorruptFileError: a model of the study is missing or damaged.
        ValueError: a family has a name that is no name of a folder.
        FileExistsError: the folder is not empty.
        OSError: it cannot be written.
    """
    target = Path(folder)
    if target.is_dir() and any(target.iterdir()):
        raise FileExistsError(f"{str(target)!r} is not empty: name a new folder for the models")
    listed = []
    for row in study.models.to_dict("records"):
        name = f"{row['family']}/seed-{row['seed']}"
        check_name(name)
        source = study.run_folder(str(row["family"]), int(row["seed"]))
        load_model(source, device="cpu")
        place = ensure_folder(target / name)
        for file in ("model.safetensors", "config.json"):
            copy_file(source / file, place / file)
        card = _card(study, row, name, licence, repository)
        write_bytes(place / "README.md", card.encode())
        numbers = {column: row[column] for column, _, _ in _SHOWN if row[column] == row[column]}
        digest = read_json(source / "config.json")["sha256"]
        listed.append(
            {"name": name, "task": study.config.task, "status": row["status"], "sha256": digest}
            | {"measured": numbers}
        )
    write_bytes(target / "README.md", _cards(study, licence, repository).encode())
    write_json(target / "zoo.json", {"format": ZOO_FORMAT, "models": listed})
    return target


def _card(study: Study, row: dict[Any, Any], name: str, licence: str, repository: str) -> str:
    """The card of one model."""
    said = []
    for column, label, is_share in _SHOWN:
        value, error = row[column], row.get(f"{column}_error")
        if value == value:
            interval = "–"
            if error is not None and error > 0:  # else no error was seen: no estimate of it either
                low, high = max(0.0, value - 1.96 * error), min(1.0, value + 1.96 * error)
                interval = f"[{percent(low)}, {percent(high)}]"
            shown = percent(value) if is_share else f"{value:.4f}"
            said.append((label.format(lengths=long_lengths(study)), shown, interval))
    status = "reached" if row["status"] == "reached" else "did **not** reach"
    goal = study.config.training.target
    ended = f"{status} its target accuracy of {percent(goal)}" if goal is not None else "ended"
    return "\n".join(
        (
            _header(study, f"tl_dyck {name}", licence, [(row, str(row["family"]))]),
            f"# {name}\n",
            _task(study, f"A transformer of the family `{row['family']}`, seed {row['seed']}"),
            _load(name, repository),
            "## Measured\n",
            _table(("measure", "value", "95 % interval"), said),
            "\nAccuracy is the share of brackets predicted right, in distribution or at the\n"
            "lengths that are said. Intervals are ± 1.96 standard errors over test\n"
            "strings, – where no error was seen or none is known.\n",
            f"## How it was made\n\nTraining {ended} after {row['steps']:,} steps.\n",
            _made(study, licence),
        )
    )


def _cards(study: Study, licence: str, repository: str) -> str:
    """The card of all models together: means over seeds."""
    rows, means = [], []
    for family in study.config.families:
        facts = study.summary["families"][family]
        means.append(
            ({key: each["mean"] for key, each in facts.items() if isinstance(each, dict)}, family)
        )
        cells = [f"`{family}`", str(facts["n"])]
        for column, _, is_share in _SHOWN:
            cells.append(_interval(facts.get(column), is_share))
        rows.append(cells)
    labels = [label.format(lengths=long_lengths(study)) for _, label, _ in _SHOWN]
    first = f"{study.config.families[0]}/seed-{study.config.seeds[0]}"
    return "\n".join(
        (
            _header(study, f"tl_dyck {study.config.task}", licence, means),
            f"# Trained models of {study.config.task}\n",
            _task(
                study,
                f"{len(study.models)} transformers ({len(study.config.families)} families, "
                f"{len(study.config.seeds)} seeds each)",
            ),
            _load(first, repository),
            "## Measured\n",
            _table(("family", "seeds", *labels), rows),
            "\nMeans over seeds with 95 % bootstrap intervals over seeds. Each model has a card of "
            "its own, in its folder. Models that missed their target are among them, and their "
            "cards say so.\n",
            "## How they were made\n",
            _made(study, licence),
        )
    )


def _interval(facts: dict[str, float] | None, is_share: bool) -> str:
    if facts is None:
        return "–"
    mean, low, high = (
        percent(facts[key]) if is_share else f"{facts[key]:.4f}" for key in ("mean", "low", "high")
    )
    return f"{mean} [{low}, {high}]"


def _header(study: Study, title: str, licence: str, measured: list[tuple[Any, str]]) -> str:
    """The YAML header that the Hub reads, between its two lines."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=f"tl_dyck/{study.config.task}",
            dataset_name=study.config.task,
            metric_type="accuracy",
            metric_name=f"{family}: {label.format(lengths=long_lengths(study))}",
            metric_value=round(float(values[column]), 5),
        )
        for values, family in measured
        for column, label, is_share in _SHOWN
        if is_share and values.get(column) is not None and values[column] == values[column]
    ]
    tags = ["interpretability", "dyck", "TransformerLens", "mechanistic-interpretability"]
    data = ModelCardData(
        license=licence, library_name="tl_dyck", tags=tags, model_name=title, eval_results=results
    )
    return f"---\n{data.to_yaml()}\n---\n"


def _task(study: Study, what: str) -> str:
    language = study.task.language
    return (
        f"{what}, trained to predict strings of balanced brackets: Dyck with "
        f"{language.n_types} types and depth at most {language.max_depth} "
        f"(`{study.config.task}`), such as `{language.probe_string}`. In this language the right "
        "answer is known, so a method of interpretability can be held to the truth. Not a model of "
        "text.\n"
    )


def _load(name: str, repository: str) -> str:
    return (
        "```python\n"
        "from tl_dyck import load_pretrained\n\n"
        f"model = load_pretrained({name!r}, {repository!r})\n"
        'logits, cache = model.run_with_cache("[()]")\n'
        "```\n"
    )


def _made(study: Study, licence: str) -> str:
    """Command, options, versions, machine, licence."""
    facts = study.summary["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    command = study_command(replace(study, folder=Path("results/study")))
    again = f"```sh\n{command}\n```\n\n" if command else ""
    options = json.dumps(asdict(study.config.training), indent=1)
    return (
        f"{again}{versions}, Python {facts['python']}; {facts.get('cpu') or 'CPU not recorded'}, "
        f"{facts['gpu'] or 'no GPU'}. On another CPU sums are rounded in another way, and other "
        "models come out.\n\n"
        f"Options of training:\n\n```json\n{options}\n```\n\n"
        f"## Licence\n\n{licence}. Trained on strings that a program drew; no data of anybody's.\n"
    )


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
