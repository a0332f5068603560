"""What Label Studio's labelling configurations, annotations and predictions mean to a campaign.

One kind of project is understood: every task is one picture or one text, and gets one of several
choices. Everything else is refused in words that say what was found.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from labelwise.errors import BadInput

KINDS = {"Image": "images", "Text": "texts"}
"""The tags that show an item, and the kind of campaign that they make."""

_SINGLE = ("single", "single-radio")
_ONLY = "labelwise reads projects with one single-choice Choices for one Image or Text"


@dataclass(frozen=True)
class Layout:
    """What a project asks its annotators.

    Attributes:
        kind: ``"images"`` or ``"texts"``.
        field: The name under which a task's data holds the picture's address or the text.
        control: The name of the choices.
        shown: The name of the picture or text that they are about.
        classes: The choices in order, as annotations hold them.
        others: Further questions, which are left alone.
    """

    kind: str
    field: str
    control: str
    shown: str
    classes: tuple[str, ...]
    others: tuple[str, ...] = ()


def read_layout(config: str) -> Layout:
    """Read a labelling configuration.

    Raises:
        BadInput: It asks for something that a campaign cannot hold.

    Example:
        >>> layout = read_layout('''<View><Text name="review" value="$body"/>
        ...   <Choices name="mood" toName="review"><Choice value="good"/><Choice value="bad"/>
        ...   </Choices></View>''')
        >>> layout.kind, layout.field, layout.classes
        ('texts', 'body', ('good', 'bad'))
    """
    root = _parsed(config)
    controls = [tag for tag in root.iter() if tag.get("toName")]
    choices = [tag for tag in controls if tag.tag == "Choices"]
    if len(choices) != 1:
        found = ", ".join(sorted({tag.tag for tag in controls})) or "no question"
        how = f"{len(choices)} Choices" if choices else found
        raise BadInput(f"the labelling configuration has {how}; {_ONLY}")
    (control,) = choices
    _check_choices(control)
    shown = control.get("toName", "")
    named = {tag.get("name"): tag for tag in root.iter() if tag.get("name")}
    thing = named.get(shown)
    if thing is None or thing.tag not in KINDS:
        what = "nothing" if thing is None else thing.tag
        raise BadInput(f"the choices are about {what}; {_ONLY}")
    return Layout(
        kind=KINDS[thing.tag],
        field=_field(thing),
        control=control.get("name", ""),
        shown=shown,
        classes=_classes(control),
        others=tuple(f"{tag.tag} {tag.get('name')}" for tag in controls if tag is not control),
    )


def _parsed(config: str) -> ElementTree.Element:
    if "<!DOCTYPE" in config or "<!ENTITY" in config:
        raise BadInput("the labelling configuration declares entities; take the declaration out")
    try:
        return ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise BadInput(f"the labelling configuration cannot be read ({error})") from None


def _check_choices(control: ElementTree.Element) -> None:
    how = control.get("choice", "single")
    if how not in _SINGLE:
        raise BadInput(f"the choices are choice={how!r}; {_ONLY}")
    for name in ("perRegion", "perItem"):
        if control.get(name, "false").lower() == "true":
            raise BadInput(f"the choices are asked {name}; {_ONLY}")
    if control.get("value"):
        raise BadInput(f"the choices come from each task (value={control.get('value')!r}); {_ONLY}")


def _classes(control: ElementTree.Element) -> tuple[str, ...]:
    tags = [tag for tag in control.iter("Choice")]
    if any(tag.find(".//Choice") is not None for tag in tags):
        raise BadInput(f"the choices are nested; {_ONLY}")
    found = tuple(dict.fromkeys(tag.get("alias") or tag.get("value") or "" for tag in tags))
    if len(found) < 2 or "" in found:
        raise BadInput(f"the choices must be two or more with a value each; got {list(found)}")
    return found


def _field(thing: ElementTree.Element) -> str:
    value = thing.get("value", "")
    if thing.tag == "Text" and thing.get("valueType", "text") != "text":
        raise BadInput(f"the texts are addresses (valueType={thing.get('valueType')!r}); {_ONLY}")
    name = value[1:]
    if value[:1] != "$" or not name.replace("_", "").replace("-", "").isalnum():
        raise BadInput(f"{thing.tag} shows value={value!r}, not one field as $name; {_ONLY}")
    return name


@dataclass(frozen=True)
class Vote:
    """A label that someone gave, and how many seconds it took them in all."""

    label: str
    seconds: float | None = None


@dataclass(frozen=True)
class Said:
    """What people say of a task, after all.

    Attributes:
        votes: By person, their label.
        skip: Who last said that it should not be labelled, if nobody labelled it since.
        unread: Annotations that are no labels, by what is wrong with them.
    """

    votes: Mapping[str, Vote] = field(default_factory=dict)
    skip: str | None = None
    unread: Mapping[str, int] = field(default_factory=dict)


def read_annotations(
    annotations: Iterable[Mapping[str, Any]], layout: Layout, people: Mapping[int, str]
) -> Said:
    """What the annotations of a task come to: each person's last word, and the last skip.

    Args:
        annotations: Of one task, as Label Studio exports them.
        layout: Of the project.
        people: Names by number of user.

    Example:
        >>> layout = Layout("texts", "text", "label", "text", ("good", "bad"))
        >>> chosen = {"from_name": "label", "value": {"choices": ["bad"]}}
        >>> said = read_annotations(
        ...     [{"id": 1, "completed_by": 4, "result": [chosen], "lead_time": 2.5}],
        ...     layout, {4: "ann@example.org"},
        ... )
        >>> said.votes
        {'ann@example.org': Vote(label='bad', seconds=2.5)}
    """
    votes: dict[str, Vote] = {}
    skip: str | None = None
    unread: Counter[str] = Counter()
    for annotation in sorted(annotations, key=_when):
        by = person(annotation.get("completed_by"), people)
        if annotation.get("was_cancelled"):
            votes.pop(by, None)
            skip = by
            continue
        label, wrong = _label(annotation.get("result"), layout)
        if label is None:
            unread[wrong] += 1
            continue
        votes[by] = Vote(label, _seconds(annotation.get("lead_time")))
        skip = None
    return Said(votes, skip, dict(unread))


def person(given: Any, people: Mapping[int, str]) -> str:
    """An annotator's name, as a campaign holds it.

    Example:
        >>> person(4, {4: "ann@example.org"}), person({"id": 5, "email": "bob@x.org"}, {})
        ('ann@example.org', 'bob@x.org')
    """
    name = ""
    if isinstance(given, Mapping):
        name = str(given.get("email") or "")
        given = given.get("id")
    if not name and given is not None:
        name = people.get(given, "") if isinstance(given, int) else ""
        name = name or f"user {given}"
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:200]


def _when(annotation: Mapping[str, Any]) -> tuple[str, int]:
    """Times of Label Studio are all in one form, and sort as texts."""
    at = annotation.get("updated_at") or annotation.get("created_at") or ""
    number = annotation.get("id")
    return str(at), number if isinstance(number, int) else 0


def _seconds(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) and value >= 0 else None


def _label(result: Any, layout: Layout) -> tuple[str | None, str]:
    """The label in an annotation; None and what is wrong where there is none."""
    chosen: list[Any] = []
    for part in result if isinstance(result, list) else ():
        if isinstance(part, Mapping) and part.get("from_name") == layout.control:
            value = part.get("value")
            given = value.get("choices") if isinstance(value, Mapping) else None
            chosen += given if isinstance(given, list) else []
    if not chosen:
        return None, "no choice"
    if len(chosen) > 1:
        return None, "several choices"
    if chosen[0] not in layout.classes:
        return None, "a choice that the project does not have"
    return str(chosen[0]), ""


def prediction(
    task: int, score: float, version: str, layout: Layout, guess: tuple[Any, float] | None = None
) -> dict[str, Any]:
    """A prediction as Label Studio takes it.

    The score is for the queue: the lowest comes first. How sure the model is stands beside its
    guess. Without a guess the result is empty, and annotators are shown nothing.

    Args:
        task: Its number.
        score: Its place in the queue, from 0 to 1.
        version: Of the model.
        layout: Of the project.
        guess: The model's label, and how sure of it it is.
    """
    result = [] if guess is None else [region(layout, *guess)]
    return {"task": task, "result": result, "score": score, "model_version": version}


def region(layout: Layout, label: Any, confidence: float) -> dict[str, Any]:
    """A guess as Label Studio shows it, with how sure the model is."""
    return {
        "from_name": layout.control,
        "to_name": layout.shown,
        "type": "choices",
        "value": {"choices": [str(label)]},
        "score": confidence,
    }
