"""Models for telephones: none are made."""

from torchlike import _absent

globals().update(
    _absent.names(
        __name__, "nothing is compiled", "optimize_for_mobile generate_mobile_module_lints"
    )
)
