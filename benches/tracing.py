"""What tracing a ResNet-50 costs, beside PyTorch: `python benches/tracing.py [--torch PYTHON]`.

The model is on the meta device. `trace` is `symbolic_trace` with the module that it makes, `recompile` the source of
a graph, `first call` the same and a call, and `interpreter` a run of the graph node by node. Ratios above 1 mean
torchlike is faster.
"""

from __future__ import annotations

import _turns

MODEL = """
import sys, importlib
nn = torch.nn
fx = importlib.import_module(torch.__name__ + ".fx")
class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or inside != 4 * width:
            self.down = nn.Sequential(
                nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.down is None else self.down(x)
        return self.relu(out)
class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.pool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        inside, stages = 64, []
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            blocks = []
            for j in range(count):
                blocks.append(Bottleneck(inside, width, 1 if j else stride))
                inside = 4 * width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.mean, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(2048, 1000)
    def forward(self, x):
        x = self.stages(self.pool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(self.mean(x), 1))
with torch.device("meta"):
    model = ResNet()
    x = torch.empty(1, 3, 64, 64)
gm = fx.symbolic_trace(model)
class Plain(fx.Interpreter):
    def call_module(self, target, args, kwargs):
        return args[0]
    def call_function(self, target, args, kwargs):
        return args[0]
plain = Plain(gm)
def nothing(x):
    return torch.relu(x)
def other(x):
    return torch.sigmoid(x)
"""


def cases() -> _turns.Cases:
    """Setup and statement of each case."""
    return {
        "trace": (MODEL, "fx.symbolic_trace(model)"),
        "trace, no module made": (MODEL, "fx.Tracer().trace(model)"),
        "recompile": (MODEL, "gm.recompile()"),
        "recompile and first call": (MODEL, "gm.recompile(); gm.forward"),
        "interpreter, calls left out": (MODEL, "plain.run(x)"),
        "interpreter on meta": (MODEL, "fx.Interpreter(gm).run(x)"),
        "copy of the graph": (MODEL, "import copy; copy.deepcopy(gm.graph)"),
        "replace_pattern": (MODEL, "fx.replace_pattern(gm, nothing, other)"),
    }


if __name__ == "__main__":
    _turns.main(__doc__, __file__, cases())
