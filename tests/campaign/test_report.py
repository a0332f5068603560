"""The report of a campaign: its pictures, its report, and that nobody's text can act in it."""

import base64
import io
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from labelwise.campaign.evaluation import ModelScore
from labelwise.campaign.folder.items import MANIFEST, CampaignItems, write_items
from labelwise.campaign.report import page as page_module
from labelwise.campaign.report.data import (
    BatchPicks,
    ReportData,
    ReportedPick,
    collect_report,
    make_item_view,
)
from labelwise.campaign.report.page import choose_axis_ticks, draw_curve, draw_growth
from labelwise.media.images import make_thumbnail_url
from labelwise.record.events import Asked, Skipped, Started, Told, Trained, Withdrawn
from labelwise.record.ledger import replay

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
POINTS = (
    ModelScore(20, 0.5, 0.4, 0.6),
    ModelScore(40, 0.7, 0.6, 0.8),
    ModelScore(80, 0.75, 0.7, 0.8),
)


def parsed(svg):
    """The picture as a tree: it must be well-formed."""
    return ElementTree.fromstring(svg)


def places(tree, kind):
    """The coordinates of the points of a line or a band."""
    (shape,) = [entry for entry in tree.iter() if entry.get("class") == kind]
    return [tuple(map(float, pair.split(","))) for pair in shape.get("points").split()]


def test_a_curve_runs_from_left_to_right_and_up_where_values_grow():
    line = places(parsed(draw_curve(POINTS, is_share=True)), "curve")
    xs, ys = zip(*line, strict=True)
    assert xs[0] < xs[1] < xs[2] and ys[0] > ys[1] > ys[2]
    assert (xs[2] - xs[1]) / (xs[1] - xs[0]) == pytest.approx((80 - 40) / (40 - 20), rel=0.01)
    assert (ys[0] - ys[1]) / (ys[1] - ys[2]) == pytest.approx(0.2 / 0.05, rel=0.05)


def test_the_band_lies_between_the_ends_of_the_intervals():
    tree = parsed(draw_curve(POINTS, is_share=True))
    line, band = places(tree, "curve"), places(tree, "band")
    highs, lows = band[:3], band[:2:-1]
    for (x, y), high, low in zip(line, highs, lows, strict=True):
        assert high[0] == low[0] == x
        assert high[1] < y < low[1]
    per_percent = (line[0][1] - line[1][1]) / 20
    assert lows[0][1] - highs[0][1] == pytest.approx(20 * per_percent, rel=0.05)


def test_every_point_of_a_curve_says_its_numbers():
    tree = parsed(draw_curve(POINTS, is_share=True))
    said = [entry.text for entry in tree.iter() if entry.tag.endswith("title")]
    assert said[0] == "20 labels: 50 % (40 to 60 %)"
    assert said[2] == "80 labels: 75 % (70 to 80 %)"


def test_an_error_is_not_shown_in_percent():
    svg = draw_curve([ModelScore(10, 250.0), ModelScore(20, 100.0)], is_share=False)
    assert "%" not in svg and "20 labels: 100" in svg


def test_one_measurement_has_its_interval_as_a_whisker():
    tree = parsed(draw_curve(POINTS[:1], is_share=True))
    assert [entry.get("class") for entry in tree.iter()].count("whisker") == 1


def test_steps_rise_to_the_last_count_at_the_right_edge():
    tree = parsed(draw_growth([0.0, 10.0, 100.0], [1, 5, 10]))
    (line,) = [e.get("d") for e in tree.iter() if e.get("class") == "curve"]
    heights = [float(v) for v in re.findall(r"V([\d.]+)", line)]
    assert heights == sorted(heights, reverse=True) and len(heights) == 3
    base = float(re.match(r"M[\d.]+ ([\d.]+)", line).group(1))
    assert (base - heights[1]) / (base - heights[2]) == pytest.approx(0.5, rel=0.01)


@given(
    low=st.floats(-1e6, 1e6),
    span=st.floats(1e-3, 1e6),
    count=st.integers(1, 9),
)
def test_ticks_are_even_and_inside_the_range(low, span, count):
    found = choose_axis_ticks(low, low + span, count)
    slack = 1e-6 * max(abs(low), span)
    assert all(low - slack <= value <= low + span + slack for value in found)
    assert len(found) <= count + 1
    steps = [b - a for a, b in pairwise(found)]
    assert all(math.isclose(step, steps[0], rel_tol=1e-3) for step in steps)


class Elements(HTMLParser):
    """Every element and attribute that a browser would see."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def hostile_report():
    pick = ReportedPick(3, HOSTILE, None, HOSTILE, HOSTILE, 0.9, HOSTILE)
    return ReportData(
        HOSTILE,
        items=10,
        labels=2,
        batches=1,
        tiles=((HOSTILE, HOSTILE, HOSTILE),),
        advice=(HOSTILE,),
        metric=HOSTILE,
        points=POINTS,
        trainings=((HOSTILE,) * 5,),
        growth=((0.0, 1), (5.0, 2)),
        balance=((HOSTILE, 3), ("b", 1)),
        annotators=((HOSTILE, "2", "0", "1.5", "0.10", "–"),),
        agreement=HOSTILE,
        pairs=((HOSTILE, "1", "1", "1"),),
        surprises=(pick, ReportedPick(4, HOSTILE, "data:x" + HOSTILE, HOSTILE)),
        picks=(BatchPicks(1, HOSTILE, (pick,)),),
        costs=((HOSTILE, HOSTILE),),
        settings=((HOSTILE, HOSTILE),),
        version=HOSTILE,
    )


def test_hostile_texts_are_shown_and_never_act():
    page = page_module.render_report(hostile_report())
    found = Elements(page)
    assert "script" not in found.tags
    assert not [name for name in found.attributes if name.startswith("on")]
    assert found.tags.count("img") == 1
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 15


def test_the_page_forbids_scripts_and_loads_nothing():
    page = page_module.render_report(hostile_report())
    assert "default-src 'none'" in page
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", page)
    assert "http" not in page.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in page


EVENTS = [
    Started(at=0.0, settings={"classes": ["cat", "dog", "emu"], "batch": 4}, items=50),
    Asked(at=1.0, batch=1, ids=(1, 2, 3, 4), strategy="random", validation=(4,)),
    Told(at=10.0, id=1, label="cat", by="ann", seconds=2.0),
    Told(at=20.0, id=2, label="cat", by="ann", seconds=4.0),
    Told(at=30.0, id=3, label="dog", by="ann", seconds=60.0),
    Told(at=40.0, id=4, label="dog", by="bob"),
    Trained(
        at=50.0,
        number=1,
        labels=44,
        seconds=1.5,
        metrics={"accuracy": 0.5, "interval": [0.25, 0.75], "validation_labels": 40},
    ),
    Asked(
        at=60.0,
        batch=2,
        ids=(9, 8, 7, 6),
        strategy="margin",
        model=1,
        guesses=(("cat", 0.6), ("cat", 0.9), ("dog", 0.8), ("dog", 0.5)),
    ),
    Told(at=70.0, id=9, label="dog", by="ann", seconds=2.0),
    Told(at=80.0, id=8, label="dog", by="bob"),
    Told(at=90.0, id=7, label="dog", by="bob"),
    Withdrawn(at=95.0, id=7, by="bob"),
    Skipped(at=99.0, id=6, by="bob"),
]


def show(item):
    return f"item {item}", None


@pytest.fixture
def report():
    return collect_report("birds", replay(EVENTS), EVENTS, show, now=lambda: 100.0)


def test_the_report_count_labels_batches_and_people(report):
    tiles = {name: value for name, value, _ in report.tiles}
    assert tiles == {
        "labelled": "6",
        "waiting": "1",
        "skipped": "1",
        "annotators": "2",
        "models": "1",
    }
    assert (report.items, report.labels, report.batches) == (50, 6, 2)


def test_classes_without_labels_are_among_the_balance(report):
    assert report.balance == (("dog", 4), ("cat", 2), ("emu", 0))
    page = page_module.render_report(report)
    assert "Some classes have no label yet." in page
    assert re.findall(r'<div style="width: ([\d.]+)%">', page) == ["100.0", "50.0", "0.0"]


def test_the_curve_has_the_intervals_of_the_record(report):
    assert report.points == (ModelScore(44, 0.5, 0.25, 0.75, evaluated=40),)
    assert report.trainings == (("1", "4", "40", "50.0 %", "25.0 % to 75.0 %", "–", "–", "1.5 s"),)
    assert report.measured == 40


def test_a_score_from_few_labels_is_replaced_by_their_number():
    few = {"accuracy": 1.0, "interval": [0.6, 1.0], "validation_labels": 7, "training_labels": 30}
    events = [*EVENTS[:6], Trained(50.0, 1, 37, 1.5, few)]
    report = collect_report("birds", replay(events), events, show, now=lambda: 100.0)
    assert report.points == ()
    assert report.trainings == (("1", "30", "7", "evaluating: 7 of 30", "–", "–", "–", "1.5 s"),)


def test_people_come_busiest_first_with_their_median_time(report):
    found = [row[:4] for row in report.annotators]
    assert found == [("ann", "4", "0", "3.0"), ("bob", "2", "1", "–")]


def test_surprises_are_wrong_guesses_the_surest_first(report):
    assert [(pick.id, pick.guess, pick.label) for pick in report.surprises] == [
        (8, "cat", "dog"),
        (9, "cat", "dog"),
    ]


def test_the_first_picks_come_newest_batch_first_without_those_for_measuring(report):
    shown = [(batch.number, [pick.id for pick in batch.picks]) for batch in report.picks]
    assert shown == [(2, [9, 8, 7, 6]), (1, [1, 2, 3])]


def test_growth_counts_votes_that_stand(report):
    assert report.growth[-2:] == ((90.0, 7), (95.0, 6))


def test_growth_of_a_long_record_is_thinned_but_keeps_its_ends():
    events = [Told(at=float(n), id=n, label=0) for n in range(5000)]
    growth = collect_report("g", replay(events), events, show).growth
    assert len(growth) == 200
    assert (growth[0], growth[-1]) == ((0.0, 1), (4999.0, 5000))


def test_values_of_a_regression_are_counted_in_ranges():
    start = Started(at=0.0, settings={"regression": True}, items=50)
    events = [start, *(Told(at=1.0, id=n, label=float(n)) for n in range(21))]
    report = collect_report("g", replay(events), events, show)
    assert report.is_regression and sum(count for _, count in report.balance) == 21
    assert report.balance[0] == ("0 to 2", 2) and report.balance[-1] == ("18 to 20", 3)
    assert "Distribution of the labels" in page_module.render_report(report)


def test_markup_in_class_file_and_annotator_names_is_shown_as_text():
    settings = {"classes": [HOSTILE, "b"]}
    events = [
        Started(at=0.0, settings=settings, items=5),
        Asked(at=1.0, batch=1, ids=(1,), strategy="margin", guesses=((HOSTILE, 0.9),)),
        Told(at=2.0, id=1, label=HOSTILE, by=HOSTILE),
    ]
    report = collect_report(HOSTILE, replay(events), events, lambda item: (HOSTILE, "data:,"))
    page = page_module.render_report(report)
    found = Elements(page)
    assert "script" not in found.tags and found.tags.count("img") == 1
    assert not [name for name in found.attributes if name.startswith("on")]
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 6


def report_confusions(names, counts, suspicious=()):
    measures = {"classes": names, "confusions": counts, "suspicious": list(suspicious)}
    events = [*EVENTS, Trained(at=99.0, number=2, labels=5, seconds=1, metrics={})]
    events[-1].metrics["out_of_fold"] = measures
    return collect_report("birds", replay(events), events, show)


def test_confusions_and_suspicious_labels_are_reported():
    report = report_confusions(
        ["cat", "dog"], [[3, 1], [0, 0]], [[9, 0.02, "cat"], [8, 0.1, "dog"]]
    )
    assert report.confusion_head == ("label", "labels", "accuracy", "as cat", "as dog")
    assert report.confusions == (("cat", "4", "75.0 %", "3", "1"), ("dog", "0", "–", "", ""))
    assert [(one.id, one.label, one.guess) for one in report.suspicious] == [(9, "dog", "cat")]
    page = page_module.render_report(report)
    assert "Labels to check" in page and "gives its label 2.0 %" in page and "as dog" in page


def test_of_many_classes_the_most_frequent_confusion_is_reported():
    names, counts = [f"c{place}" for place in range(20)], np.zeros((20, 20), dtype=int)
    counts[3, [3, 4, 7]] = 5, 1, 4
    report = report_confusions(names, counts.tolist())
    assert report.confusion_head[-1] == "most often taken for"
    assert report.confusions[3] == ("c3", "10", "50.0 %", "c7 (4)")
    assert report.confusions[0] == ("c0", "0", "–", "–")


def test_a_campaign_without_anything_has_a_page(tmp_path):
    events = [Started(at=0.0, settings={}, items=50)]
    report = collect_report("new", replay(events), events, show)
    page_module.write_report(report, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "0 of 50 items have a label" in page and "No model has been evaluated yet" in page


def decoded(address):
    kind, data = re.match(r"data:image/(\w+);base64,(.+)", address).groups()
    return kind, Image.open(io.BytesIO(base64.b64decode(data)))


def test_a_photo_becomes_small_keeps_its_shape_and_loses_what_else_it_says(tmp_path):
    exif = Image.Exif()
    exif[0x010F] = "a camera"
    Image.new("RGB", (1200, 600), (10, 200, 30)).save(tmp_path / "photo.jpg", exif=exif)
    kind, small = decoded(make_thumbnail_url(tmp_path / "photo.jpg"))
    assert (kind, small.size, dict(small.getexif())) == ("jpeg", (240, 120), {})
    assert np.abs(np.array(small)[60, 60].astype(int) - (10, 200, 30)).max() < 12


def test_a_tiny_picture_is_enlarged_pixel_by_pixel(tmp_path):
    pixels = np.array([[0, 255], [255, 0]], dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "tiny.png")
    kind, shown = decoded(make_thumbnail_url(tmp_path / "tiny.png"))
    assert (kind, shown.size) == ("png", (120, 120))
    assert np.array_equal(np.array(shown)[::60, ::60, 0], pixels)


@pytest.mark.parametrize("mode", ["RGBA", "I;16", "P", "1", "CMYK"])
def test_pictures_of_any_kind_are_shown(mode, tmp_path):
    path = tmp_path / ("picture.tif" if mode == "CMYK" else "picture.png")
    Image.new(mode, (90, 30)).save(path)
    _, small = decoded(make_thumbnail_url(path))
    assert small.size == (90, 30) and small.mode == "RGB"


def test_what_is_no_picture_has_none(tmp_path):
    (tmp_path / "no.png").write_bytes(b"<svg onload=alert(1)>")
    assert make_thumbnail_url(tmp_path / "no.png") is None
    assert make_thumbnail_url(tmp_path / "gone.png") is None


def test_a_long_text_is_cut_and_a_file_that_is_gone_is_said(tmp_path):
    write_items(tmp_path / MANIFEST, [{"text": "word " * 500}])
    shown, picture = make_item_view(CampaignItems(tmp_path, "texts", tmp_path))(0)
    assert len(shown) == 600 and shown.endswith("…") and picture is None
    (tmp_path / MANIFEST).unlink()
    write_items(tmp_path / MANIFEST, [{"path": "gone.png"}])
    shown, picture = make_item_view(CampaignItems(tmp_path, "images", tmp_path))(0)
    assert "the file of item 0 is gone" in shown and picture is None
