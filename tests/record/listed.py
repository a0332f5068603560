"""Folders of pictures that a campaign lists."""

from labelwise.campaign.folder.items import MANIFEST, write_items


def pictures(tmp_path, *paths):
    """A folder with empty files of these paths, and a campaign's folder that lists them."""
    source, home = tmp_path / "photos", tmp_path / "home"
    home.mkdir()
    for path in paths:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(b"")
    write_items(home / MANIFEST, [{"path": path} for path in paths])
    return home, source
