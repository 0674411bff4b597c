"""Loading and saving."""


def load(f, map_location=None, **_):
    raise NotImplementedError("load")


def save(obj, f, **_):
    raise NotImplementedError("save")
