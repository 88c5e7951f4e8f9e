"""Which of the wrong values are right after all, by the annotation and name of a parameter."""

from __future__ import annotations

import inspect

from tests.arguments.public import Public

TEXTS = {"empty", "text", "lines"}
NUMBERS = {"minus", "zero", "half", "huge"}
NOTHING = {"list", "tensor", "generator"}
SEVERAL = ("Sequence", "Iterable", "Tokens", "tuple", "list", "Ignored")
CALLED = {"class", "linear", "function"}

#: By what is right, names of parameters: zero where nothing is drawn, or asked of the empty string;
#: huge where it is only a bound; an empty text that is read; a collection with nothing in it.
RIGHT: list[tuple[set[str], str]] = [
    ({"minus", "zero", "huge"}, "seed"),  # torch takes them all
    ({"zero", "huge"}, "chunk n_bootstrap steps n longest length lengths most_run min_steps"),
    ({"zero", "huge"}, "warmup_steps n_certified decided_length data_seed first_seed limit budget"),
    ({"zero", "huge"}, "sub dup drop typo"),
    ({"huge"}, "check_every checkpoint_every log_every bos padding n_inserted rounds k top_k"),
    ({"huge"}, "every t_max"),
    ({"zero", "half", "huge"}, "eps ln_c ln_mid weight_decay learning_rate gate_learning_rate"),
    ({"zero", "half", "huge"}, "contrastive_weight drift_weight scale gap epsilon spread weight"),
    ({"zero", "half", "huge"}, "temperature tolerance aside attn_scale freq_penalty"),
    (NUMBERS, "log_alpha initializer_range above"),
    ({"minus", "zero"}, "layer head"),  # counted from the end
    ({"zero", *NOTHING}, "ignore"),
    ({"zero"}, "bos_token unknown_token target token batch label eos_token_id spare_layers"),
    ({"half", "huge"}, "time_limit score_cap logit_cap"),
    ({"empty", *NOTHING}, "tokens candidate strings path edits words but sentences string"),
    (NOTHING, "transformations hooks deletable insertions protected alphabet before layers heads"),
    (NOTHING, "metrics by modes train test list own questions knobs"),
    ({"empty"}, "text input separator probe_string"),
    (TEXTS, "called summary model_name paper unit yes experiment address space synonyms"),
    (TEXTS, "group"),
    ({"text"}, "folder into"),
    ({"text", "empty"}, "name"),
    ({"minus", "zero", "huge", "far"}, "state states"),  # opaque integers
]

#: By the function, too.
HERE: dict[str, set[str]] = {
    # what follows from other fields is computed, whatever stands there
    "DyckTransformerConfig.d_vocab": NUMBERS,
    "DyckTransformerConfig.d_vocab_out": NUMBERS,
    "DyckTransformerConfig.n_params": NUMBERS,
    "DyckTransformerConfig.attn_scale": {*NUMBERS, "nan", "inf", "googol", "digits"},
    "DyckTransformerConfig.attn_scores_soft_cap": {"minus"},
    "DyckTransformerConfig.output_logits_soft_cap": {"minus"},
    "DyckTransformerConfig.d_head": {"minus"},
    # a name that is looked up when it is needed, or that only heads a message
    "Registry.kind": TEXTS,
    "check.work": {"zero", "half", "huge"},
    "edits.string": TEXTS,  # read by the model, later
    "Registry.include.summary": TEXTS,
    "StudyConfig.task": TEXTS,
    "judge.make_case.kind": TEXTS,
    "certify.Symbols.separator": TEXTS,
    "text.Sentence.text": TEXTS,
    "text.TextRecipe.data": TEXTS,
    # as JSON has them
    "StudyConfig.training": {"dict"},
    "StudyConfig.measurement": {"dict"},
    "text.TextRecipe.training": {"dict"},
    "studies.TrainExperiment.plugs": {"dict"},
    # several, of which there may be none
    "train_seeds.seeds": {"zero", *NOTHING},
    "judge.score_heads.kinds": NOTHING,
    "probes.variation_of_patterns.text": NOTHING,
    "adopt.outputs": NOTHING,  # logits that are of no token: classes
    "Vocabulary.orders.outputs": NOTHING,
    "text.SentencesMeasurement.n_interval": {"zero"},
    "text.CertifiedSentences.certificates": NOTHING,
    "text.TextConfig.n_classes": {"huge"},  # no model is made yet
    "text.TextConfig.d_model": {"huge"},
    "text.TextConfig.d_mlp": {"zero", "huge"},
    "text.TextConfig.n_ctx": {"huge"},
    "text.TextConfig.encode.text": TEXTS,  # words that it does not know
    "judge.Suite.key": {"zero", "huge"},
    "judge.tune_methods.budget": {"half"},
    "judge.make_suite.path": {"text"},  # the name of a file
    "tasks.addition_task.least_first": {"empty"},  # none
    "rnn.RNNConfig.predicts": {"zero"},
    "language.StringList.batches.tokens": {"huge"},  # at a time
    "read_strings.end": TEXTS,
    # a number that no token has
    "certify.Symbols.silent": NUMBERS,
    "certify.Symbols.unknown": NUMBERS,
    "certify.Symbols.logits": {"minus", "zero", "huge"},
    "certify.Symbols.logit.target": NUMBERS,
    "certify.Insert.strings": {"far"},
    "certify.Resources.insertions": {"nans", "far"},  # read when a text asks for them
    "balance_violation.data": {"far"},  # not read where the first layer is minimal
    # asked when hooks run
    "interventions.interchange.basis": {"nans"},
    "interventions.interchange.source": {"tensor", "nans", "number"},
    "FinetuneConfig.penalties": {"number"},
    "runs.Sweep.with_settings.seeds": {"twos"},
    "interventions.change_activation.head": {"zero", "huge"},
}


def is_right(each: Public, parameter: inspect.Parameter, label: str) -> bool:
    """Whether this value is documented as one that the parameter may have."""
    annotation, name = str(parameter.annotation), parameter.name
    if f"{each.name}.{name}" in OPAQUE:
        return True
    if label == "none":
        return parameter.default is None or "None" in annotation or "Optional" in annotation
    if label == "whole":
        return "float" in annotation
    if label == "twos" and any(word in annotation for word in SEVERAL):
        return True
    label = {"two": "text"}.get(label, label)
    if label == "cube":
        return "Int[Tensor" in annotation and "*" in annotation  # tokens of any shape
    if label == "config":
        return "Config" in annotation
    if label == "true" and ("bool" in annotation or parameter.default is True):
        return True
    if label in CALLED:
        return any(word in annotation for word in ("Callable", "Change", "Certifier", "Probe"))
    if label == "dict" and ("Mapping" in annotation or name == "values"):
        return True
    if any(label in labels and name in names.split() for labels, names in RIGHT):
        return True
    return label in HERE.get(f"{each.name}.{name}", ())


#: An object of any kind is handed back as it is.
OPAQUE = {"Registry.resolve.named", "Registry.include.item"}
#: Read where a method hands it back.
OPAQUE |= {"judge.WithError.values", "judge.WithError.error"}
#: Strings of any shape; whatever has a language.
OPAQUE |= {"AutomatonTask.states_of.tokens", "read_strings.language"}
