"""The demo: strategies compared on handwritten digits, and a labelling page for them."""
