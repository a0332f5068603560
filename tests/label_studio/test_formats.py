"""What labelling configurations and annotations are taken to mean."""

import pytest

from labelwise.errors import BadInput
from labelwise.label_studio import formats
from labelwise.label_studio.formats import (
    AnnotatorVote,
    ProjectLayout,
    make_prediction,
    read_annotations,
    read_layout,
)

LAYOUT = ProjectLayout("texts", "body", "mood", "text", ("good", "bad"))
PEOPLE = {1: "ann@example.org", 2: "bob@example.org"}
TWO = '<Choice value="a"/><Choice value="b"/>'


def annotation(number, label, by=1, at=None, cancelled=False, seconds=None, control="mood"):
    chosen = [] if label is None else label if isinstance(label, list) else [label]
    result = [{"from_name": control, "type": "choices", "value": {"choices": chosen}}]
    return {
        "id": number,
        "completed_by": by,
        "result": result if chosen else [],
        "was_cancelled": cancelled,
        "lead_time": seconds,
        "updated_at": at or f"2026-01-01T00:00:{number:02d}Z",
    }


def said(*annotations):
    return read_annotations(annotations, LAYOUT, PEOPLE)


def test_a_layout_of_pictures_is_read_with_its_aliases_and_other_questions():
    layout = read_layout(
        '<View><Header value="Look!"/><Image name="pic" value="$url"/>'
        '<View><Choices name="kind" toName="pic" choice="single-radio">'
        '<Choice value="A cat" alias="cat"/><Choice value="dog"/></Choices></View>'
        '<TextArea name="note" toName="pic"/></View>'
    )
    assert layout == ProjectLayout(
        "images", "url", "kind", "pic", ("cat", "dog"), ("TextArea note",)
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (f'<Choices name="c" toName="t" choice="multiple">{TWO}</Choices>', "choice='multiple'"),
        (f'<Choices name="c" toName="t" perRegion="true">{TWO}</Choices>', "perRegion"),
        ('<Choices name="c" toName="t" value="$options"/>', "from each task"),
        ('<Choices name="c" toName="t"><Choice value="a">' + TWO + "</Choice></Choices>", "nested"),
        ('<Choices name="c" toName="t"><Choice value="a"/></Choices>', "two or more"),
        (f'<Choices name="c" toName="x">{TWO}</Choices>', "about nothing"),
        (f'<Choices name="c" toName="a">{TWO}</Choices>', "about Audio"),
        (f'<Choices name="c" toName="u">{TWO}</Choices>', "valueType='url'"),
        (f'<Choices name="c" toName="l">{TWO}</Choices>', "not one field"),
        (
            f'<Choices name="c" toName="t">{TWO}</Choices>'
            f'<Choices name="d" toName="t">{TWO}</Choices>',
            "has 2 Choices",
        ),
        ('<TextArea name="c" toName="t"/><Rating name="r" toName="t"/>', "has Rating, TextArea;"),
        ("", "no question"),
    ],
)
def test_what_is_no_single_choice_is_refused_by_name(config, words):
    shown = '<Text name="t" value="$text"/><Audio name="a" value="$a"/>'
    shown += '<Text name="u" value="$u" valueType="url"/><Text name="l" value="a $b"/>'
    with pytest.raises(BadInput, match=words) as caught:
        read_layout(f"<View>{shown}{config}</View>")
    assert "single-choice" in str(caught.value) or "two or more" in str(caught.value)


@pytest.mark.parametrize("config", ["<View", '<!DOCTYPE x [<!ENTITY a "b">]><View/>'])
def test_a_configuration_that_is_no_plain_xml_is_refused(config):
    with pytest.raises(BadInput, match="labelling configuration"):
        read_layout(config)


def test_the_last_word_of_each_person_counts_by_time_and_not_by_place():
    late = annotation(1, "good", at="2026-01-01T00:09:00.000002Z", seconds=4)
    early = annotation(2, "bad", at="2026-01-01T00:09:00.000001Z", seconds=9)
    found = said(late, annotation(3, "bad", by=2), early)
    assert found.votes == {
        "ann@example.org": AnnotatorVote("good", 4.0),
        "bob@example.org": AnnotatorVote("bad"),
    }
    assert found.skip is None


def test_a_skip_takes_the_place_of_ones_own_label_and_stands_until_someone_labels():
    skipped = said(annotation(1, "good"), annotation(2, None, cancelled=True))
    assert (dict(skipped.votes), skipped.skip) == ({}, "ann@example.org")
    other = said(annotation(1, "good", by=2), annotation(2, None, cancelled=True))
    assert (list(other.votes), other.skip) == (["bob@example.org"], "ann@example.org")
    labelled = said(annotation(1, None, cancelled=True), annotation(2, "bad", by=2))
    assert (list(labelled.votes), labelled.skip) == (["bob@example.org"], None)


def test_what_is_no_label_is_left_alone_and_counted():
    found = said(
        annotation(1, None),
        annotation(2, ["good", "bad"]),
        annotation(3, "ugly", by=2),
        annotation(4, "good", control="other"),
        {"id": 5, "completed_by": 1, "result": "?"},
        annotation(6, "good"),
    )
    assert found.votes == {"ann@example.org": AnnotatorVote("good")}
    assert found.unread == {
        "no choice": 3,
        "several choices": 1,
        "a choice that the project does not have": 1,
    }


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (1, "ann@example.org"),
        (7, "user 7"),
        ({"id": 2}, "bob@example.org"),
        ({"id": 7, "email": "x\x1b[2J@y.org"}, "x?[2J@y.org"),
        (None, ""),
    ],
)
def test_annotators_have_their_addresses_as_names(given, name):
    assert formats.name_annotator(given, PEOPLE) == name


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "3", True, None])
def test_a_time_that_is_none_is_left_out(seconds):
    found = said(annotation(1, "good", seconds=seconds))
    assert found.votes["ann@example.org"].seconds is None


def test_confidence_stands_beside_the_guess_and_never_in_the_score():
    given = make_prediction(7, 0.25, "labelwise-3", LAYOUT, ("bad", 0.9))
    assert (given["task"], given["score"], given["model_version"]) == (7, 0.25, "labelwise-3")
    (region,) = given["result"]
    assert region["score"] == 0.9 and region["value"] == {"choices": ["bad"]}
    assert (region["from_name"], region["to_name"], region["type"]) == ("mood", "text", "choices")
    assert make_prediction(7, 0.25, "labelwise-3", LAYOUT)["result"] == []
