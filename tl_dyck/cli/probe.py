"""``tl-dyck probe``: probes of saved models."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from tl_dyck.cli.answers import answer, plain
from tl_dyck.cli.early import existing_models
from tl_dyck.cli.options import Device, Only, usable_device, whole
from tl_dyck.cli.saved import LoadedModel, Models, String, load_models, trained_task
from tl_dyck.cli.terminal import console, say_note, table
from tl_dyck.errors import is_refusal


def probe(
    models: Models,
    name: Annotated[
        str | None,
        typer.Option(
            "--probe", "-p", metavar="NAME", help="One probe only. \\[default: all that apply]"
        ),
    ] = None,
    string: String = None,
    only: Only = None,
    head: Annotated[
        int | None,
        typer.Option(
            "--head",
            metavar="N",
            help="Of balance_violation, for models with several heads.",
            callback=whole(),
        ),
    ] = None,
    device: Device = None,
) -> None:
    """Probe saved models: do patterns differ, do they look at the stack, are they balanced?

    For example: [bold]tl-dyck probe results/study:gpt[/bold], or
    [bold]tl-dyck probe results/train/dyck-2-4/gpt -p stack_likeness -s "[[]]()"[/bold]
    """
    from tl_dyck.probes import list_probes
    from tl_dyck.registry import unknown_name

    existing_models(*models)
    if name is not None and name not in list_probes():
        raise unknown_name("probe", name, list_probes())

    loaded = load_models(models, only, usable_device(device))
    if string is not None:
        for each in loaded:
            each.model.cfg.language.parse(string)
    _measure(loaded, name, string, head)


def _measure(
    models: list[LoadedModel], name: str | None, string: str | None, head: int | None
) -> None:
    """Every probe that applies, or one by name."""
    from tl_dyck.probes import OWN, list_probes
    from tl_dyck.studies.measurement import has_balance

    if name in (None, "attention_variation") and (name or len(models) > 1):
        _applies(name, _variation, models, string)
    if name in (None, "stack_likeness"):
        _applies(name, _stack, models, string)
    if name in (None, "balance_violation"):
        _applies(name, _balance, models, head)
    minimal = all(has_balance(each.model) for each in models)
    if name == "pair_drift" or (name is None and minimal):
        _applies(name, _drift, models)
    if name == "accuracy_at_length" or (name is None and minimal):
        _applies(name, _at_length, models)
    for other in list_probes() if name is None else [name]:
        if other not in OWN:
            _applies(name, _other, models, other)


def _applies(asked: str | None, say: Any, *arguments: Any) -> None:
    """Call `say`; that a probe does not apply is an error only if it was asked for."""
    from tl_dyck.probes import ProbeError

    try:
        say(*arguments)
    except (ValueError, ProbeError) as error:
        if asked is not None or not is_refusal(error):
            raise
        say_note(f"Not measured: {str(error).rstrip('.')}.\n")


def _variation(models: list[LoadedModel], string: str | None) -> None:
    from tl_dyck.probes import attention_variation

    languages = {each.model.cfg.language for each in models}
    if len(languages) > 1:
        raise ValueError(
            "attention variation: the models are of different languages; compare like with like"
        )
    found = attention_variation([each.model for each in models], string)
    text = "".join(found.input[1:])
    _title("Attention variation", f"{len(models)} models on {text}")
    rows = table("layer", "variation", "95% interval", "random patterns", right=range(1, 4))
    for layer, (value, (low, high)) in enumerate(
        zip(found.matched, found.matched_interval, strict=True)
    ):
        interval = f"{low:.2f} to {high:.2f}" if low == low else "–"  # two models have none
        rows.add_row(str(layer), f"{value:.2f}", interval, f"{found.random_baseline:.2f}")
    answer(
        attention_variation={
            "input": text,
            "layers": found.matched,
            "intervals": found.matched_interval,
            "random_patterns": found.random_baseline,
        }
    )
    console().print(rows)
    say_note("Squared Frobenius norm of the difference of two patterns; 0: the same pattern.\n")


def _stack(models: list[LoadedModel], string: str | None) -> None:
    from tl_dyck.probes import stack_likeness

    rows = table(
        "model", "layer", "head", "weight", "at closing", "first there", "chance", right=range(1, 7)
    )
    listed = []
    for name, folder, model, _ in models:
        data = model.to_tokens(string).cpu() if string is not None else trained_task(folder, model)
        found = stack_likeness(model, data, language=model.cfg.language)
        for layer in range(model.cfg.n_layers):
            for head in range(model.cfg.n_heads):
                cells = (
                    f"{found.mass[layer, head]:.2f}",
                    f"{found.mass_at_closing[layer, head]:.2f}",
                    f"{found.argmax_at_closing[layer, head]:.0%}",
                    f"{found.chance_at_closing:.2f}",
                )
                rows.add_row(Text(name), str(layer), str(head), *cells)
                numbers = {
                    "weight": found.mass[layer, head],
                    "weight_at_closing": found.mass_at_closing[layer, head],
                    "first_at_closing": found.argmax_at_closing[layer, head],
                    "chance_at_closing": found.chance_at_closing,
                }
                listed.append({"model": name, "layer": layer, "head": head, **numbers})
    answer(stack_likeness=listed)
    _title("Stack-likeness", f"on {string}" if string is not None else "on 200 training strings")
    console().print(rows)
    say_note("weight: attention on the last bracket still open. at closing: of queries that close.")
    say_note("first there: closing brackets whose largest weight is there.\n")


def _balance(models: list[LoadedModel], head: int | None) -> None:
    from tl_dyck.probes import balance_violation

    found = [(each.name, balance_violation(each.model, head=head)) for each in models]
    answer(
        balance_violation=[
            {"model": name, "beta": result.beta, "largest_ratio": result.ratio.max()}
            for name, result in found
        ]
    )
    _title("Balance violation", "0: balanced, so able to generalise to any length")
    rows = table("model", "balance violation", "largest S/P", right=range(1, 3))
    for name, result in found:
        rows.add_row(Text(name), f"{result.beta:.4f}", f"{result.ratio.max():.4f}")
    console().print(rows)
    console().print()


def _drift(models: list[LoadedModel]) -> None:
    from tl_dyck.probes import pair_drift

    found = [(each.name, pair_drift(each.model)) for each in models]
    answer(
        pair_drift=[
            {
                "model": name,
                "drift": float(result),
                "accuracy_at_450": result.accuracy(450),
                "length_at_75_percent": result.length_at(),
            }
            for name, result in found
        ]
    )
    _title("Drift of matched pairs", "0: none, so able to generalise to any length")
    rows = table(
        "model", "drift per bracket", "accuracy at 450", "75% at length", right=range(1, 4)
    )
    for name, result in found:
        lost = result.length_at()
        length = f"{lost:,.0f}" if lost < 1e6 else "over a million"
        rows.add_row(Text(name), f"{float(result):.2%}", f"{result.accuracy(450):.1%}", length)
    console().print(rows)
    say_note(
        "drift: of the way between two answers. Accuracy after a closing bracket: predicted.\n"
    )


def _at_length(models: list[LoadedModel]) -> None:
    from tl_dyck.probes import accuracy_at_length

    found = []
    for name, folder, model, _ in models:
        law = trained_task(folder, model)
        lengths = law.closing_lengths(long=True)
        found.append((name, accuracy_at_length(model, lengths, law.distribution)))
    answer(
        accuracy_at_length=[
            {
                "model": name,
                "after_close": result.after_close,
                "error": result.error,
                "after_close_by_depth": result.after_close_by_depth,
            }
            for name, result in found
        ]
    )
    _title("Accuracy at length", "after a closing bracket, predicted from the weights")
    rows = table("model", "accuracy", "by depth", right=range(1, 3))
    for name, result in found:
        depths = ("–" if share is None else f"{share:.1%}" for share in result.after_close_by_depth)
        accuracy = f"{result.after_close:.1%} ± {result.error:.1%}"
        rows.add_row(Text(name), accuracy, ", ".join(depths))
    console().print(rows)
    say_note("At the lengths that test length generalisation. ±: of the draws.\n")


def _other(models: list[LoadedModel], probe: str) -> None:
    """A third party's probe: called with one model or with all, shown as it shows itself."""
    from tl_dyck.probes import ProbeError, call_probe, load_probe, takes_many

    parcels = (
        [(f"{len(models)} models", [each.model for each in models])]
        if takes_many(load_probe(probe))
        else [(each.name, [each.model]) for each in models]
    )
    _title(probe, "")
    failed, rows = [], []
    for name, parcel in parcels:
        try:
            found = call_probe(probe, parcel)
        except ProbeError as error:
            failed.append(error)
            say_note(f"{name}  not measured: {error}")
        else:
            rows.append({"model": name, "result": plain(found)})
            console().print(Text.assemble((f"{name}  ", "bold"), repr(found)))
    answer(**{probe: rows})
    console().print()
    if len(failed) == len(parcels):
        raise failed[0]


def _title(title: str, rest: str) -> None:
    console().print(Text.assemble((title, "bold"), f"  {rest}"))
