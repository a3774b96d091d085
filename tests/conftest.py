"""What holds for all tests."""

import signal

from hypothesis import settings

# Machines are noisy: how long one example takes says nothing of the code. Time is measured by `bench/`.
settings.register_profile("fencepost", deadline=None)
settings.load_profile("fencepost")

# Shells start what they run in the background with Ctrl-C ignored, and that is inherited: tests interrupt processes.
signal.signal(signal.SIGINT, signal.default_int_handler)
