"""The image that nodes run from in Docker: what is in it, and how it is made, with or without a registry."""
