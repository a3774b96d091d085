"""What holds for all tests."""

from hypothesis import settings

# Machines are noisy: how long one example takes says nothing of the code. Time is measured by `bench/`.
settings.register_profile("fencepost", deadline=None)
settings.load_profile("fencepost")
