"""The demo: strategies compared on handwritten digits."""
