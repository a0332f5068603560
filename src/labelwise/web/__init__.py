"""The labelling page, its server and API, and the bridge to Label Studio."""
