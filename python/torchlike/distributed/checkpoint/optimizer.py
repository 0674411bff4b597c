"""An optimizer's state from several files."""

from torchlike import _absent

_why = "there are none here: use torch.save and torch.load"
globals().update(_absent.names(__name__, _why, "load_sharded_optimizer_state_dict"))
