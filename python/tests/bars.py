"""A progress bar that tests can look at."""


class Bar:
    """A bar as tqdm has it."""

    def __init__(self):
        self.n, self.is_closed = 0, False

    def update(self, more):
        assert more >= 0 and not self.is_closed
        self.n += more

    def close(self):
        self.is_closed = True
