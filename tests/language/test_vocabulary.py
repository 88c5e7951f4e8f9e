import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.foreign import LANGUAGE, VOCABULARY, theirs
from tl_dyck import DyckLanguage, Vocabulary, VocabularyError, build_tokenizer


def test_a_mapping_and_a_sequence_say_the_same():
    assert Vocabulary(LANGUAGE, [4, 5, 2, 3], bos=1, padding=0) == VOCABULARY
    assert repr(VOCABULARY) == "Vocabulary([ 4, ] 5, ( 2, ) 3, BOS 1, padding 0)"
    assert VOCABULARY.ids == (4, 5, 2, 3, 1)


@given(st.text("[]()", max_size=12), st.integers(0, 3))
def test_text_by_hand_and_by_the_maps(text, filling):
    ours = torch.tensor([4, *("[]()".index(bracket) for bracket in text), *[4] * filling])
    user = torch.tensor([*theirs(text), *[0] * filling])
    assert VOCABULARY.to_model(ours[None])[0].tolist() == user.tolist()
    assert VOCABULARY.to_ours(user).tolist() == ours.tolist()


@given(st.permutations(range(9)), st.integers(1, 3))
def test_there_and_back_whatever_the_ids(ids, k):
    language = DyckLanguage(k, 2)
    vocabulary = Vocabulary(language, ids[: 2 * k], bos=ids[2 * k])
    tokens = torch.arange(language.d_vocab).expand(2, -1)
    assert torch.equal(vocabulary.to_ours(vocabulary.to_model(tokens)), tokens)
    order = vocabulary.order(9).tolist()
    assert sorted(order) == list(range(9))
    assert order[: 2 * k + 1] == list(ids[: 2 * k + 1])


def test_ids_of_a_tokenizer():
    tokenizer = build_tokenizer(DyckLanguage(3, 4, ["{", "}", "[", "]", "(", ")"]))
    read = Vocabulary.of_tokenizer(LANGUAGE, tokenizer)
    assert read.ids == (2, 3, 4, 5, 6)
    assert read.padding == 6
    with pytest.raises(VocabularyError, match="no token '<'"):
        Vocabulary.of_tokenizer(DyckLanguage(1, 2, ["<", ">"]), tokenizer)


@pytest.mark.parametrize(
    ("brackets", "bos", "padding", "message"),
    [
        ([4, 5, 2], 1, None, "4 brackets.*3 ids"),
        ([4, 5, 2, 2], 1, None, r"id 2 is given to both \( and \)"),
        ([4, 5, 2, 3], 3, None, r"both \) and BOS"),
        ([4, 5, 2, 3], 1, 5, r"both \] and padding"),
        ([4, 5, 2, -3], 1, None, "the id of a bracket must be at least 0"),
        ({"[": 4, "]": 5, "<": 2, ">": 3}, 1, None, "ids are given for"),
    ],
)
def test_what_cannot_be_right(brackets, bos, padding, message):
    with pytest.raises(VocabularyError, match=message):
        Vocabulary(LANGUAGE, brackets, bos=bos, padding=padding)


def test_other_things_are_refused_by_name():
    with pytest.raises(VocabularyError, match="id 5 is not in a vocabulary of d_vocab=5"):
        VOCABULARY.order(5)
    with pytest.raises(VocabularyError, match="id 7 is not named"):
        VOCABULARY.to_ours(torch.tensor([1, 7]))
    with pytest.raises(VocabularyError, match="id -1 is not named"):
        VOCABULARY.to_ours(torch.tensor([1, -1]))
    with pytest.raises(VocabularyError, match="goes on after padding"):
        VOCABULARY.to_ours(torch.tensor([[0, 0, 1, 2]]))
    with pytest.raises(ValueError, match=r"outside 0\.\.4"):
        VOCABULARY.to_model(torch.tensor([4, 5]))
