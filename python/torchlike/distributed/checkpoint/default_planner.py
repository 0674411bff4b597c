"""Plans of saving and loading by several processes."""

from torchlike import _absent

_why = "there are none here: use torch.save and torch.load"
globals().update(_absent.names(__name__, _why, "DefaultLoadPlanner DefaultSavePlanner"))
