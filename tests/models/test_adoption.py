import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.foreign import LANGUAGE, SHAPES, VOCABULARY, foreign, theirs
from tl_dyck import (
    AutomatonTask,
    DyckLanguage,
    Vocabulary,
    VocabularyError,
    VocabularyWarning,
    adopt,
    balance_violation,
    build_model,
    build_tokenizer,
    certify_dyck,
    certify_language,
    export_rnn,
    finetuned_importance,
    get_config,
    load_task,
    measure_heads,
    parse_space,
    stack_likeness,
)
from tl_dyck.certify import certify
from tl_dyck.report import widgets
from tl_dyck.tasks import counted_accuracy, nats_over_law

TASK = load_task("dyck-2-4")
TEXT = "[(())]()"


@pytest.mark.parametrize("shape", SHAPES)
def test_it_computes_what_the_model_computes(shape):
    model = foreign(shape)
    mine = adopt(model, VOCABULARY)
    logits, cache = model.run_with_cache(torch.tensor([theirs(TEXT)]))
    found, kept = mine.run_with_cache(TEXT)
    order = [4, 5, 2, 3, 1, 0, 6, 7]  # ours are [ ] ( ) BOS, then what is left
    torch.testing.assert_close(found, logits[..., order], rtol=1e-5, atol=1e-5)
    assert set(kept) == set(cache)
    for name in cache:
        told = cache[name][..., order] if name == "unembed.hook_out" else cache[name]
        torch.testing.assert_close(kept[name], told, rtol=1e-5, atol=1e-5)
    assert mine.to_str_tokens(TEXT) == ["<bos>", *TEXT]


def test_the_model_itself_is_left_alone():
    model = foreign("attn-only")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mine = adopt(model, VOCABULARY)
    with torch.no_grad():
        for parameter in mine.parameters():
            parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not hasattr(model.cfg, "language")
    assert model.tokenizer is None


def test_hooks_come_along():
    model = foreign("attn-only")
    model.add_perma_hook("blocks.1.attn.hook_z", lambda z, hook: 0 * z)
    _, cache = adopt(model, VOCABULARY).run_with_cache(TEXT)
    assert not cache["blocks.1.attn.hook_z"].any()
    assert cache["blocks.0.attn.hook_z"].any()


def test_numbers_are_those_of_a_model_with_our_ids():
    ours = build_model(get_config("gpt", TASK, n_heads=2, initializer_range=0.6, n_ctx=40))
    fields = {"d_model": 50, "d_head": 25, "d_mlp": 50, "act_fn": "relu"}
    their = foreign("three-layers", n_layers=2, **fields)
    weights = ours.state_dict()
    place = torch.tensor([4, 5, 2, 3, 1])
    for name, axis in (("embed.W_E", 0), ("unembed.W_U", 1), ("unembed.b_U", 0)):
        table = torch.full_like(their.state_dict()[name], -9.0)
        weights[name] = table.index_copy(axis, place, weights[name])
    their.load_state_dict(weights)
    mine = adopt(their, VOCABULARY)
    assert TASK.closing_accuracy(mine, n=50) == TASK.closing_accuracy(ours, n=50)
    a, b = stack_likeness(mine, TASK, n=20), stack_likeness(ours, TASK, n=20)
    assert a.mass == pytest.approx(b.mass, abs=1e-6)
    assert a.chance == b.chance
    asked = {"first_layer": "means", "head": 1, "n": 300}
    beta = balance_violation(ours, TASK, **asked).beta
    assert balance_violation(mine, TASK, **asked).beta == pytest.approx(beta, rel=1e-4)


@pytest.mark.parametrize(
    "measure",
    [
        TASK.closing_accuracy,
        lambda model: stack_likeness(model, TASK),
        lambda model: stack_likeness(model, torch.tensor([theirs(TEXT)])),
        lambda model: balance_violation(model, TASK, first_layer="means", head=0),
        lambda model: measure_heads(model, TASK),
        lambda model: finetuned_importance(model, TASK),
        lambda model: certify_dyck(model, TASK),
        lambda model: certify_dyck(export_rnn(model), TASK),
        lambda model: certify_language(model, TASK, 4),
        lambda model: certify_language(export_rnn(model), TASK, 4),
        lambda model: certify(model, [2, 4], None, parse_space("pairs:1", language=LANGUAGE)),
        lambda model: widgets.attention(model, TEXT),
    ],
)
@pytest.mark.parametrize("d_vocab", [8, 60])
def test_unknown_ids_are_refused_and_never_measured(measure, d_vocab):
    with pytest.raises(VocabularyError, match=r"adopt\(model, Vocabulary\(language"):
        measure(foreign("one-layer", d_vocab=d_vocab))


def test_as_many_ids_as_ours_are_not_ours_until_somebody_says_so():
    model = foreign("one-layer", d_vocab=5)
    with pytest.raises(VocabularyError, match=r"Vocabulary\.ours\(language\)"):
        TASK.closing_accuracy(model)
    mine = adopt(model, Vocabulary.ours(LANGUAGE))
    tokens = mine.to_tokens(TEXT)
    assert torch.equal(mine(tokens), model(tokens))
    assert stack_likeness(model, tokens, language=LANGUAGE).mass == pytest.approx(
        stack_likeness(mine, tokens).mass
    )


def test_what_a_function_returns_is_looked_at():
    with pytest.raises(VocabularyError, match=r"returned \[100, 26, 4\]"):
        TASK.closing_accuracy(lambda tokens: torch.zeros(*tokens.shape, 4))
    with pytest.raises(VocabularyError, match=r"returned \[\]"):
        TASK.closing_accuracy(lambda tokens: torch.zeros(()))


def test_another_language_is_refused():
    model = adopt(foreign("one-layer"), VOCABULARY)
    with pytest.raises(VocabularyError, match="2 types of brackets, not 3"):
        load_task("dyck-3-4").closing_accuracy(model)
    with pytest.raises(VocabularyError, match="2 types of brackets, not 3"):
        load_task("dyck-3-4").closing_accuracy(build_model(get_config("gpt", TASK)))
    with pytest.raises(VocabularyError, match="the RNN's tokens"):
        certify_dyck(export_rnn(model), load_task("dyck-3-4"))


def test_a_tokenizer_is_asked_and_may_object():
    language = DyckLanguage(3, 4, ["{", "}", "[", "]", "(", ")"])
    model = foreign("attn-only")
    model.set_tokenizer(build_tokenizer(language))
    mine = adopt(model, LANGUAGE)
    expected = model("[()]")[..., [2, 3, 4, 5, 6]]
    torch.testing.assert_close(mine("[()]")[..., :5], expected)
    with pytest.raises(VocabularyError, match=r"tokenizer says that '\[' is id 2"):
        adopt(model, VOCABULARY)


def test_what_cannot_be_adopted():
    with pytest.raises(VocabularyError, match="id 5 is not in a vocabulary of d_vocab=4"):
        adopt(foreign("attn-only", d_vocab=4), VOCABULARY)
    with pytest.raises(VocabularyError, match="no tokenizer to ask"):
        adopt(foreign("attn-only"), LANGUAGE)
    with pytest.raises(VocabularyError, match="are known"):
        adopt(build_model(get_config("gpt", TASK)), VOCABULARY)
    with pytest.raises(TypeError, match="takes a HookedTransformer, not Identity"):
        adopt(torch.nn.Identity(), VOCABULARY)
    with pytest.raises(TypeError, match="a Vocabulary or a DyckLanguage, got"):
        adopt(foreign("attn-only"), {"[": 1})
    broken = foreign("three-layers")
    with torch.no_grad():
        broken.blocks[1].mlp.W_in[0, 3] = math.nan
    with pytest.raises(ValueError, match=r"weight blocks.1.mlp.W_in holds nan or infinite"):
        adopt(broken, VOCABULARY)


def test_a_classifier_keeps_its_classes():
    model = foreign("one-layer", d_vocab_out=2)
    mine = adopt(model, VOCABULARY)
    torch.testing.assert_close(mine(TEXT), model(torch.tensor([theirs(TEXT)])))
    with pytest.raises(VocabularyError, match=r"returned \[100, 26, 2\]"):
        TASK.closing_accuracy(mine)


def test_other_tokens_still_compete():
    model = foreign("one-layer")
    with torch.no_grad():
        model.unembed.b_U[7] = 1e6  # always predicts what is no bracket
    found = TASK.closing_accuracy(adopt(model, VOCABULARY), n=20)
    assert found.any_token == 0.0 < found.closing_only


# --- ids that are named wrongly -------------------------------------------------------------------


def predicting(chances: dict[int, float], **fields: Any) -> Any:
    """A model of the user's ids that predicts by these odds, whatever it reads."""
    model = foreign("one-layer", **fields)
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.fill_(math.log(1e-6))
        for token, chance in chances.items():
            model.unembed.b_U[token] = math.log(chance)
    return model


FIRST = {2: 0.5, 4: 0.5}  # ( and [, as theirs are: 1/k each, and hardly anything else


def test_a_model_that_reads_as_it_learned_does_not_warn():
    adopt(predicting(FIRST), VOCABULARY)
    adopt(predicting({**FIRST, 3: 0.4, 5: 0.4}), VOCABULARY)  # has not learned what comes first
    adopt(predicting({2: 0.98, 3: 0.005, 5: 0.005, 4: 0.01}), VOCABULARY)
    adopt(predicting({7: 1.0}), VOCABULARY)  # a token that is no bracket may come, for all we know
    adopt(predicting({3: 0.3, 5: 0.3}, d_vocab_out=6, d_vocab=8), VOCABULARY)  # no tokens
    adopt(foreign("bidirectional"), VOCABULARY)


@pytest.mark.parametrize(
    ("ids", "closing", "opening", "share"),
    [
        ({"(": 3, ")": 2, "[": 4, "]": 5}, r"\)", r"\(", "50%"),  # one pair swapped
        ({"(": 2, ")": 3, "[": 5, "]": 4}, r"\]", r"\[", "50%"),
        ({"(": 3, ")": 4, "[": 5, "]": 2}, r"[\])]", r"[\[(]", "50%"),  # across types
    ],
)
def test_a_swapped_vocabulary_warns(ids, closing, opening, share):
    said = rf"gives '{closing}', which no string begins with, {share}, and '{opening}'"
    with pytest.warns(VocabularyWarning, match=said + r".*check the ids"):
        adopt(predicting(FIRST), Vocabulary(LANGUAGE, ids, bos=1, padding=0))


@pytest.mark.parametrize(("never", "rarest", "warns"), [
    (0.26, 0.0025, True),  # at least half of the likeliest, and a hundred times the rarest
    (0.24, 0.0020, False),
    (0.26, 0.0030, False),
])  # fmt: skip
def test_where_the_warning_begins(never, rarest, warns):
    odds = {4: 0.5, 2: rarest, 3: never}
    odds[7] = 1.0 - sum(odds.values()) - 3e-6
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        adopt(predicting(odds), VOCABULARY)
    assert sum(each.category is VocabularyWarning for each in said) == warns


def test_untrained_models_do_not_warn():
    for seed in range(20):
        model = build_model(get_config("gpt", TASK, n_layers=1, n_ctx=40), seed)
        plain = foreign("three-layers", n_layers=1, d_model=50, d_head=50, n_heads=1, d_mlp=50,
                        act_fn="relu", d_vocab=5)  # fmt: skip
        plain.load_state_dict(model.state_dict())
        adopt(plain, Vocabulary.ours(LANGUAGE))


def letters(first: Callable[[str], dict[str, str]]) -> Any:
    return AutomatonTask(
        name="letters", symbols=("a", "b", "c"), start="s", moves=first, train_lengths=(2,),
        long_lengths=(2, 2),
    )  # fmt: skip


def test_of_an_automaton_the_task_knows_what_may_come_first():
    """The words are aa and ca; of the model, first come a and b, which is c by its ids."""
    task = letters(lambda state: {"a": "e", "c": "e"} if state == "s" else {"a": "e"})
    model = adopt(predicting({2: 0.5, 3: 0.5}), Vocabulary(task.language, (2, 3, 4), bos=1))
    for measure in (counted_accuracy, nats_over_law):
        with pytest.warns(VocabularyWarning, match="gives 'b', which no string .* and 'c', which"):
            measure(task, model, n=5)
    right = adopt(predicting({2: 0.5, 3: 0.5}), Vocabulary(task.language, (2, 4, 3), bos=1))
    for measure in (counted_accuracy, nats_over_law):
        measure(task, right, n=5)
