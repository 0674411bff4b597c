"""Archives of models with their code: not written, and not run."""

from torchlike import _absent

__all__ = ["PackageExporter", "PackageImporter"]

_why = "archives with code are neither written nor run"
PackageExporter = _absent.kind(__name__, "PackageExporter", _why)
PackageImporter = _absent.kind(__name__, "PackageImporter", _why)
