"""The files of a campaign: description, items, ingesting new ones, missing ones."""
