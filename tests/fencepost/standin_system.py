"""A lock service that exists by name only, for scenarios that are read and never run."""


class Standin:
    tokens_span_keys = True
    name = "standin"
