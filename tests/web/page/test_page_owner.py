"""Settings, classes, notes and items that come again later."""

from PIL import Image

from tests.web.page.browsing import press_and_see, shown, until, wait_saved, wait_told


def test_the_owner_sets_a_goal_and_the_batch_size(make, visit):
    labelling = make(8)
    page = visit(labelling.url)
    shown(page)
    page.get_by_role("button", name="Settings").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Accuracy to reach, in %").fill("90")
    dialog.get_by_label("Items per batch").fill("25")
    dialog.get_by_text("Only this machine can open the page").wait_for()
    dialog.get_by_role("button", name="Save").click()
    page.locator(".batch").get_by_text("90 % right").first.wait_for()
    settings = labelling.ledger().settings
    assert (settings["goal"], settings["batch"]) == (0.9, 25)


def test_a_class_is_added_described_and_renamed_while_labelling(make, visit):
    labelling = make(24, classes=["cat", "dog"])
    page, other = visit(labelling.url), visit(labelling.url, name="Bob")
    shown(other)
    first = shown(page)
    press_and_see(page, "1")
    wait_saved(page)
    page.get_by_role("button", name="Classes").click()
    page.get_by_label("New class").fill("bird")
    page.keyboard.press("Enter")
    page.get_by_label("Name of bird").wait_for()
    page.get_by_label("Name of cat").fill("tiger")
    page.get_by_label("Description of cat").fill("has stripes")
    page.keyboard.press("Enter")
    page.get_by_label("Name of tiger").wait_for()
    page.keyboard.press("Escape")
    names = ["t\ntiger", "d\ndog", "b\nbird"]
    until(lambda: page.locator(".choice").all_inner_texts() == names)
    until(lambda: other.locator(".choice").all_inner_texts() == names)
    assert page.locator(".choice").first.get_attribute("title") == "tiger: has stripes"
    assert labelling.ledger().labels == {first: "tiger"}
    press_and_see(page, "3")
    wait_saved(page)
    assert set(labelling.ledger().labels.values()) == {"tiger", "bird"}


def test_an_item_can_wait_and_get_a_note(make, visit):
    labelling = make(8)
    page = visit(labelling.url)
    first = shown(page)
    page.keyboard.press("Shift+N")
    page.keyboard.type("blurred")
    page.keyboard.press("Enter")
    wait_told(page, "Note saved")
    until(lambda: labelling.ledger().notes == {first: {"Ada": "blurred"}})
    page.keyboard.press("Shift+N")
    page.keyboard.press("1")  # a frequent one
    until(lambda: labelling.ledger().notes == {first: {"Ada": "unsure"}})
    assert press_and_see(page, "Shift+L") != first
    while shown(page) != first:  # it comes again after the others
        press_and_see(page, "1")
    wait_saved(page)
    assert len(labelling.votes()) >= 3


def test_the_owner_removes_an_annotator_and_lets_them_in_again(make, visit):
    labelling = make(12)
    other, page = visit(labelling.url, name="Bob"), visit(labelling.url)
    first = shown(other)
    press_and_see(other, "3")
    wait_saved(other)
    page.locator(".people").get_by_text("Bob").wait_for()
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="Remove: Bob").click()
    wait_told(page, "Bob is removed; the labels stay")
    other.keyboard.press("3")
    other.locator(".status.bad").wait_for()  # the label is refused, and the page says so
    assert labelling.votes() == {first: {"Bob": "3"}}
    page.get_by_role("button", name="Let in again: Bob").click()
    wait_told(page, "Bob can label again")


def test_the_owner_adds_a_picture_which_is_then_listed(make, visit, tmp_path):
    labelling = make(8, features=None, encoder="none", classes=["a", "b"])
    page = visit(labelling.url)
    shown(page)
    more = tmp_path / "more.png"
    Image.new("RGB", (8, 8), (200, 30, 30)).save(more)
    page.get_by_role("button", name="Settings").click()
    field = page.get_by_label("Files with new items")
    (tmp_path / "notes.txt").write_text("no picture")
    field.set_input_files(tmp_path / "notes.txt")
    page.get_by_role("status").get_by_text("notes.txt: ").wait_for()
    field.set_input_files(more)
    page.get_by_role("status").get_by_text("1 new item added").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("i")
    page.locator(".total").get_by_text("9 items").wait_for()
    page.locator(".row", has_text="more.png").wait_for()


def test_the_link_of_the_owner_opens_the_settings_behind_a_proxy(make, visit, start_server):
    server = start_server(make(30).project.home, "--no-training", "--token", "open-sesame")
    until(lambda: any("Only for you" in line for line in server.lines))
    (line,) = [line for line in server.lines if "Only for you" in line]
    guest, owner = visit(f"{server.url}?token=open-sesame"), visit(line.split()[-1], name="Bob")
    shown(guest)
    guest.get_by_role("button", name="Invite").click()
    guest.get_by_role("dialog").get_by_text("Only this machine").wait_for()
    assert guest.get_by_label("Items per batch").count() == 0
    shown(owner)
    owner.get_by_role("button", name="Settings").click()
    owner.get_by_label("Items per batch").wait_for()
    assert owner.url == server.url


def test_other_machines_cannot_add_items_or_remove_people(make, visit):
    labelling = make(8)
    page = visit(labelling.url, extra_http_headers={"X-Forwarded-For": "10.0.0.9"})
    shown(page)
    page.get_by_role("button", name="Invite").click()
    page.get_by_role("dialog").get_by_text("Only this machine").wait_for()
    assert page.get_by_label("Files with new items").count() == 0
    answer = page.evaluate(
        "import('/static/api.js').then((api) => api.upload(new File(['x'], 'x.png')))"
        ".catch((error) => error.message)"
    )
    assert "only the owner can do this" in answer
