"""Label Studio's labelling configurations, annotations and predictions.

One kind of project is supported: every task is one image or one text, and gets one of several
choices. Other configurations are rejected with the reason.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from labelwise.errors import BadInput
from labelwise.files import JsonObject
from labelwise.learner import Label

KINDS = {"Image": "images", "Text": "texts"}
"""Tags that show an item, and the kind of campaign for each."""

_SUPPORTED = "labelwise reads projects with one single-choice Choices for one Image or Text"


@dataclass(frozen=True)
class ProjectLayout:
    """The question that a project asks its annotators."""

    kind: str  # ``"images"`` or ``"texts"``
    field: str  # Field of a task's data with the address of the image or the text
    control: str  # Name of the choices
    shown: str  # Name of the image or text that the choices refer to
    classes: tuple[str, ...]  # Choices in order, as annotations contain them
    others: tuple[str, ...] = ()  # Further questions, which are ignored


def read_layout(config: str) -> ProjectLayout:
    """Read a labelling configuration.

    Raises:
        BadInput: The configuration is not supported.

    Example:
        >>> layout = read_layout('''<View><Text name="review" value="$body"/>
        ...   <Choices name="mood" toName="review"><Choice value="good"/><Choice value="bad"/>
        ...   </Choices></View>''')
        >>> layout.kind, layout.field, layout.classes
        ('texts', 'body', ('good', 'bad'))
    """
    root = _parse_labelling_config(config)
    controls = [tag for tag in root.iter() if tag.get("toName")]
    choices = [tag for tag in controls if tag.tag == "Choices"]
    if len(choices) != 1:
        found = ", ".join(sorted({tag.tag for tag in controls})) or "no question"
        how = f"{len(choices)} Choices" if choices else found
        raise BadInput(f"the labelling configuration has {how}; {_SUPPORTED}")
    (control,) = choices
    _check_choices_control(control)
    shown = control.get("toName", "")
    named = {tag.get("name"): tag for tag in root.iter() if tag.get("name")}
    thing = named.get(shown)
    if thing is None or thing.tag not in KINDS:
        what = "nothing" if thing is None else thing.tag
        raise BadInput(f"the choices are about {what}; {_SUPPORTED}")
    return ProjectLayout(
        kind=KINDS[thing.tag],
        field=_read_task_field(thing),
        control=control.get("name", ""),
        shown=shown,
        classes=_read_choice_classes(control),
        others=tuple(f"{tag.tag} {tag.get('name')}" for tag in controls if tag is not control),
    )


def _parse_labelling_config(config: str) -> ElementTree.Element:
    if "<!DOCTYPE" in config or "<!ENTITY" in config:
        raise BadInput("the labelling configuration declares entities; remove the declaration")
    try:
        return ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise BadInput(f"the labelling configuration cannot be read ({error})") from None


def _check_choices_control(control: ElementTree.Element) -> None:
    how = control.get("choice", "single")
    if how not in ("single", "single-radio"):
        raise BadInput(f"the choices are choice={how!r}; {_SUPPORTED}")
    for name in ("perRegion", "perItem"):
        if control.get(name, "false").lower() == "true":
            raise BadInput(f"the choices are asked {name}; {_SUPPORTED}")
    value = control.get("value")
    if value:
        raise BadInput(f"the choices come from each task (value={value!r}); {_SUPPORTED}")


def _read_choice_classes(control: ElementTree.Element) -> tuple[str, ...]:
    tags = list(control.iter("Choice"))
    if any(tag.find(".//Choice") is not None for tag in tags):
        raise BadInput(f"the choices are nested; {_SUPPORTED}")
    found = tuple(dict.fromkeys(tag.get("alias") or tag.get("value") or "" for tag in tags))
    if len(found) < 2 or "" in found:
        raise BadInput(f"the choices must be two or more with a value each; got {list(found)}")
    return found


def _read_task_field(thing: ElementTree.Element) -> str:
    value, kind = thing.get("value", ""), thing.get("valueType", "text")
    if thing.tag == "Text" and kind != "text":
        raise BadInput(f"the texts are addresses (valueType={kind!r}); {_SUPPORTED}")
    name = value[1:]
    if value[:1] != "$" or not name.replace("_", "").replace("-", "").isalnum():
        raise BadInput(f"{thing.tag} shows value={value!r}, not one field as $name; {_SUPPORTED}")
    return name


@dataclass(frozen=True)
class AnnotatorVote:
    """A label by one annotator, and the seconds it took in total."""

    label: str
    seconds: float | None = None


@dataclass(frozen=True)
class TaskVotes:
    """Current votes on a task."""

    votes: Mapping[str, AnnotatorVote] = field(default_factory=dict)  # Labels by annotator
    skip: str | None = None  # Annotator who skipped the task last, if no one labelled it since
    # Number of annotations that are not labels, by reason
    unread: Mapping[str, int] = field(default_factory=dict)


def read_annotations(
    annotations: Iterable[JsonObject], layout: ProjectLayout, people: Mapping[int, str]
) -> TaskVotes:
    """Reduce the annotations of a task to the last vote of each annotator and the last skip.

    Example:
        >>> layout = ProjectLayout("texts", "text", "label", "text", ("good", "bad"))
        >>> chosen = {"from_name": "label", "value": {"choices": ["bad"]}}
        >>> found = read_annotations(
        ...     [{"id": 1, "completed_by": 4, "result": [chosen], "lead_time": 2.5}],
        ...     layout, {4: "ann@example.org"},
        ... )
        >>> found.votes
        {'ann@example.org': AnnotatorVote(label='bad', seconds=2.5)}
    """
    votes: dict[str, AnnotatorVote] = {}
    skip: str | None = None
    unread: Counter[str] = Counter()
    for annotation in sorted(annotations, key=_get_annotation_sort_key):
        by = name_annotator(annotation.get("completed_by"), people)
        if annotation.get("was_cancelled"):
            votes.pop(by, None)
            skip = by
            continue
        label, problem = _read_annotation_label(annotation.get("result"), layout)
        if label is None:
            unread[problem] += 1
            continue
        votes[by] = AnnotatorVote(label, _read_annotation_seconds(annotation.get("lead_time")))
        skip = None
    return TaskVotes(votes, skip, dict(unread))


def name_annotator(given: object, people: Mapping[int, str]) -> str:
    """Name the annotator of an annotation.

    Example:
        >>> name_annotator(4, {4: "ann@x.org"}), name_annotator({"id": 5, "email": "bob@x.org"}, {})
        ('ann@x.org', 'bob@x.org')
    """
    name = ""
    if isinstance(given, Mapping):
        name = str(given.get("email") or "")
        given = given.get("id")
    if not name and given is not None:
        name = people.get(given, "") if isinstance(given, int) else ""
        name = name or f"user {given}"
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:200]


def _get_annotation_sort_key(annotation: JsonObject) -> tuple[str, int]:
    """Get the time and number of an annotation; all times have one format and sort as texts."""
    at = annotation.get("updated_at") or annotation.get("created_at") or ""
    number = annotation.get("id")
    return str(at), number if isinstance(number, int) else 0


def _read_annotation_seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _read_annotation_label(result: object, layout: ProjectLayout) -> tuple[str | None, str]:
    """Read the label of an annotation; without one, None and the reason."""
    chosen: list[object] = []
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


def make_prediction(
    task: int,
    score: float,
    version: str,
    layout: ProjectLayout,
    guess: tuple[Label, float] | None = None,
) -> JsonObject:
    """Make a prediction for Label Studio.

    The queue serves the lowest score first. Without a guess the result is empty, and annotators
    see nothing.
    """
    result = [] if guess is None else [make_region(layout, *guess)]
    return {"task": task, "result": result, "score": score, "model_version": version}


def make_region(layout: ProjectLayout, label: Label, confidence: float) -> JsonObject:
    """Make the part of a prediction that shows a label and its confidence."""
    return {
        "from_name": layout.control,
        "to_name": layout.shown,
        "type": "choices",
        "value": {"choices": [str(label)]},
        "score": confidence,
    }
