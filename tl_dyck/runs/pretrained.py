"""Trained models by name; what is in a folder, `tl_dyck.runs.saved` looks up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tl_dyck.runs.saved import find_model


def load_pretrained(
    name: str | Path, folder: str | Path | None = None, *, device: str | None = None
) -> Any:
    """Load a trained model by its name.

    Only weights (safetensors) and JSON are read; nothing is run.

    Args:
        name: family and seed in `folder`, ``"gpt/seed-3"``; without `folder` the whole address,
            ``"results/study:gpt/seed-3"`` or a model's own folder, as the command line takes it.
        folder: of a study, of a sweep, or of any saved models.
        device: where to put the model; None for TransformerLens' default.

    Returns:
        The model, as `load_model` gives it: a `DyckTransformer`, or an adopted one.

    Raises:
        UnknownNameError: there is no such model, or several; the message names those that there
            are.
        CorruptFileError: the folder or a file of the model is missing or damaged, or weights are
            NaN or infinite.
    """
    from tl_dyck.models import load_model

    address = name if folder is None else f"{folder}:{name}"
    return load_model(find_model(address).folder, device=device)
