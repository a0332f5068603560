"""The report page of a campaign."""
