"""The record of a campaign: events, the ledger replayed from them, and storage."""
