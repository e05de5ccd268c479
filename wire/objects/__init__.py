"""Python values and dataclasses, to documents and back."""
